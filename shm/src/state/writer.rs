//! The writing side of the `state` segment.

use super::{GatewayRecord, PeerPath, PeerRecord, State, records};
use crate::{
    ids::PeerSlot,
    routes::{Arenas, PublishError, Route},
    segment::{Segment, SegmentError},
    sync::Ordering,
};

/// The `state` segment for its one writer, meta.
#[derive(Debug)]
pub struct StateWriter {
    reader: State,
    arenas: Arenas,
}

impl StateWriter {
    /// Takes the segment over, from a meta that died too: what it left half written is repaired.
    pub fn attach(segment: &Segment) -> Result<StateWriter, SegmentError> {
        segment.expect_writable()?;
        let reader = State::attach(segment)?;
        reader.control.gateway.repair();
        for path in reader.paths.iter() {
            path.repair();
        }
        for peer in reader.peers.iter() {
            peer.repair();
        }
        let mut writer = StateWriter {
            arenas: Arenas::new(segment, reader.routes.clone()),
            reader,
        };
        // The former meta may have died between a change and its epoch.
        writer.advance_epoch();
        Ok(writer)
    }

    /// Writes the gateway.
    pub fn set_gateway(&mut self, gateway: &GatewayRecord) {
        let control = &self.reader.control;
        control.gateway.write(&records::gateway_to_words(gateway));
        control
            .interface_mtu
            .store(gateway.mtu.into(), Ordering::Relaxed);
    }

    /// Writes a peer's record. A slot beyond the limit is nobody's: nothing happens.
    pub fn set_peer(&mut self, peer: PeerSlot, record: &PeerRecord) {
        if let Some(shared) = self.reader.peers.get(peer.index()) {
            shared.write(&records::peer_to_words(record));
            self.raise_high_water(peer);
        }
    }

    /// Writes the way to a peer. A slot beyond the limit is nobody's: nothing happens.
    pub fn set_path(&mut self, peer: PeerSlot, path: &PeerPath) {
        if let Some(shared) = self.reader.paths.get(peer.index()) {
            shared.write(&records::path_to_words(path));
            self.raise_high_water(peer);
        }
    }

    /// Removes a peer's record and path. The slot may be used again after a grace period.
    pub fn clear_peer(&mut self, peer: PeerSlot) {
        if let Some(path) = self.reader.paths.get(peer.index()) {
            path.write(&[0; 8]);
        }
        if let Some(record) = self.reader.peers.get(peer.index()) {
            record.write(&[0; 20]);
        }
    }

    /// Replaces all routes at once. `passed` says whether every worker has passed an epoch:
    /// [`Rings::workers_passed`](crate::rings::Rings::workers_passed). Of equal prefixes the last one wins. Gives the
    /// new epoch: whoever has passed it sees the former routes no more.
    pub fn publish_routes(
        &mut self,
        routes: &[Route],
        passed: impl Fn(u64) -> bool,
    ) -> Result<u64, PublishError> {
        let next = self.reader.epoch().wrapping_add(1);
        self.arenas.publish(routes, next, passed)?;
        Ok(self.advance_epoch())
    }

    /// Begins a new epoch and gives it: what was taken away before may be reused when all workers have passed it.
    pub fn advance_epoch(&mut self) -> u64 {
        let next = self.reader.epoch().wrapping_add(1);
        // Release: a worker that sees the epoch sees what was taken away before it.
        self.reader.control.epoch.store(next, Ordering::Release);
        next
    }

    /// The same segment for reading.
    pub fn reader(&self) -> State {
        self.reader.clone()
    }

    fn raise_high_water(&self, peer: PeerSlot) {
        let mark = &self.reader.control.peer_high_water;
        if mark.load(Ordering::Relaxed) <= peer.0 {
            mark.store(peer.0.saturating_add(1), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::LaneSlot,
        segment::{Access, Geometry, SegmentKind, create},
        state::{Endpoint, Name},
    };
    use std::os::fd::AsFd;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    fn peer(incarnation: u32) -> PeerRecord {
        PeerRecord {
            incarnation,
            public_key: [7; 32],
            name: Name::new("office"),
            keepalive_seconds: 25,
            last_handshake_unix_ns: 1,
            handshake_rx_bytes: 148,
            handshake_tx_bytes: 92,
            refusal: None,
            has_preshared_key: true,
        }
    }

    fn path(incarnation: u32) -> PeerPath {
        PeerPath {
            incarnation,
            endpoint: "192.0.2.1:51820".parse().ok().map(|remote| Endpoint {
                remote,
                local: None,
                ifindex: 0,
            }),
            lane: Some(LaneSlot(9)),
            path_mtu: 1420,
            arm_generation: 3,
        }
    }

    #[test]
    fn readers_see_what_the_writer_wrote() -> Result {
        let fds = create(SegmentKind::State, Geometry::new(4, 8, 16)?)?;
        let writable =
            Segment::attach(fds.writable.as_fd(), SegmentKind::State, Access::ReadWrite)?;
        let readable = Segment::attach(fds.readable.as_fd(), SegmentKind::State, Access::ReadOnly)?;
        assert!(StateWriter::attach(&readable).is_err());
        let mut writer = StateWriter::attach(&writable)?;
        let state = State::attach(&readable)?;
        assert_eq!(state.gateway(), None);
        assert_eq!(state.interface_mtu(), 0);
        assert_eq!(state.peer(PeerSlot(5)), None);

        let gateway = GatewayRecord {
            name: Name::new("wg0"),
            public_key: [1; 32],
            listen_port: 51820,
            fwmark: 0,
            mtu: 1420,
            link_up: true,
            last_refusal: None,
        };
        writer.set_gateway(&gateway);
        writer.set_peer(PeerSlot(5), &peer(1));
        writer.set_path(PeerSlot(5), &path(1));
        writer.set_peer(PeerSlot(8), &peer(1));
        assert_eq!(state.gateway(), Some(gateway));
        assert_eq!(state.interface_mtu(), 1420);
        assert_eq!(state.peer(PeerSlot(5)), Some(peer(1)));
        assert_eq!(state.peer_path(PeerSlot(5)), Some(path(1)));
        assert_eq!(state.peer(PeerSlot(8)), None);
        assert_eq!(state.peer_path(PeerSlot(u32::MAX)), None);
        assert_eq!(state.peer_high_water(), 6);

        writer.clear_peer(PeerSlot(5));
        assert_eq!(state.peer(PeerSlot(5)), None);
        assert_eq!(state.peer_path(PeerSlot(5)), None);
        Ok(())
    }

    #[test]
    fn a_successor_goes_on_in_a_later_epoch() -> Result {
        let fds = create(SegmentKind::State, Geometry::new(4, 8, 16)?)?;
        let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::State, Access::ReadWrite)?;
        let mut first = StateWriter::attach(&segment)?;
        first.set_peer(PeerSlot(0), &peer(4));
        let epoch = first.advance_epoch();
        drop(first);
        let second = StateWriter::attach(&segment)?;
        assert!(second.reader().epoch() > epoch);
        assert_eq!(second.reader().peer(PeerSlot(0)), Some(peer(4)));
        Ok(())
    }
}
