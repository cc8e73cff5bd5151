//! A core with one worker's ends of its rings, and a stock peer.

use crate::channel::{FromMeta, Granted, Privileged, Refused, Start};
use crate::meta::core::{Core, Parts};
use crate::meta::source::{Datagram, Source};
use crate::meta::workers::Workers;
use ringway_proto::config::{Config, Peer as PeerConfig};
use ringway_proto::cookie::{MacChecker, MacMaker};
use ringway_proto::keys::{PresharedKey, PrivateKey, PublicKey};
use ringway_proto::noise::{self, InitiatorHandshake, SessionKeys};
use ringway_proto::tai64n::Stamper;
use ringway_proto::time::Instant;
use ringway_proto::timers::Constants;
use ringway_proto::wire::{Initiation, Message, Response};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, WorkerSlot};
use ringway_shm::keys::{Keys, KeysWriter};
use ringway_shm::lanes::Lanes;
use ringway_shm::messages::{Command, Event, PacketHeader};
use ringway_shm::ring::Consumer;
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::segment::{Access, Geometry, Segment, SegmentKind, create};
use ringway_shm::state::{PeerPath, PeerRecord, State, StateWriter};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) const HERE: &str = "192.0.2.7:5000";
pub(super) const THERE: &str = "203.0.113.9:6000";

pub(super) fn drops(rig: &Rig, reason: DropReason) -> u64 {
    rig.rings.meta_counters().drops[reason as usize].load(Ordering::Relaxed)
}

/// The peer begins; its session is confirmed.
pub(super) fn answered(rig: &mut Rig, peer: &mut Stock, slot: PeerSlot) -> LaneSlot {
    let (_, message) = peer.initiate(rig);
    rig.receive(&message, HERE);
    rig.sent();
    rig.confirm(slot);
    rig.path(slot).lane.unwrap()
}

/// The gateway begins and is answered.
pub(super) fn initiated(rig: &mut Rig, peer: &mut Stock, slot: PeerSlot) -> LaneSlot {
    rig.core.want_session(slot);
    let sent = rig.sent_one();
    let (response, _) = peer.respond(rig, sent.bytes());
    rig.receive(&response, HERE);
    rig.path(slot).lane.unwrap()
}

pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) state: State,
    pub(super) keys: Keys,
    pub(super) lanes: Lanes,
    pub(super) rings: Rings,
    commands: Consumer,
    /// Seconds are added to both clocks at once.
    now: u64,
    unix: u64,
    pub(super) private: PrivateKey,
}

fn attach(kind: SegmentKind, geometry: Geometry) -> Segment {
    let fds = create(kind, geometry).unwrap();
    Segment::attach(fds.writable.as_fd(), kind, Access::ReadWrite).unwrap()
}

impl Rig {
    /// An empty gateway for so many peers and routes, with a key and its interface up.
    pub(super) fn new(peers: u32, routes: u32) -> Rig {
        let mut rig = Rig::down(peers, routes);
        let config = Config::default();
        rig.start(&config);
        rig.core.set_private_key(Some(rig.private.clone()));
        rig.core.link(1420, true);
        rig
    }

    /// A gateway before its start.
    pub(super) fn down(peers: u32, routes: u32) -> Rig {
        let geometry = Geometry::new(2, peers, routes).unwrap();
        let state = attach(SegmentKind::State, geometry);
        let keys = attach(SegmentKind::Keys, geometry);
        let lanes = attach(SegmentKind::Lanes, geometry);
        let rings = Rings::attach(&attach(SegmentKind::Rings, geometry)).unwrap();
        rings.prepare_slot(WorkerSlot(0), 1).unwrap();
        let commands = rings
            .consumer(RingId::Commands { to: WorkerSlot(0) })
            .unwrap();
        let (now, unix) = (1000 * SECOND, 1_700_000_000 * SECOND);
        let parts = Parts {
            state: StateWriter::attach(&state).unwrap(),
            keys: KeysWriter::attach(&keys).unwrap(),
            lanes: Lanes::attach(&lanes).unwrap(),
            rings: rings.clone(),
            workers: Workers::attach(&rings, vec![None], 2).unwrap(),
            geometry,
            constants: Constants::WIREGUARD,
        };
        Rig {
            state: State::attach(&state).unwrap(),
            keys: Keys::attach(&keys).unwrap(),
            lanes: Lanes::attach(&lanes).unwrap(),
            core: Core::new(parts, Instant(now), unix),
            rings,
            commands,
            now,
            unix,
            private: PrivateKey::generate().unwrap(),
        }
    }

    pub(super) fn start(&mut self, config: &Config) {
        let start = Start {
            name: "wgtest".into(),
            config_path: Some("/etc/ringway/wgtest.conf".into()),
            mtu: 1420,
        };
        self.core.start(start, config).unwrap();
        self.core.sockets_changed(51820, true, true);
        self.core.publish_routes().unwrap();
    }

    pub(super) fn now(&self) -> Instant {
        Instant(self.now)
    }

    /// Time passes; timers fire.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time.as_nanos() as u64;
        while self.now < end {
            let step = self
                .core
                .timeout()
                .map_or(u64::MAX, |timeout| timeout.as_nanos() as u64)
                .max(1);
            let step = step.min(end - self.now);
            self.now += step;
            self.unix += step;
            self.core.set_time(Instant(self.now), self.unix);
            while self.core.fire() {}
        }
    }

    /// A datagram arrives and is worked on.
    pub(super) fn receive(&mut self, bytes: &[u8], from: &str) {
        self.arrive(bytes, from);
        while self.core.work_off() {}
    }

    /// A datagram arrives and waits.
    pub(super) fn arrive(&mut self, bytes: &[u8], from: &str) {
        self.arrive_from(bytes, from.parse().unwrap());
    }

    pub(super) fn arrive_from(&mut self, bytes: &[u8], remote: SocketAddr) {
        let source = Source {
            remote,
            local: Some("198.51.100.1".parse().unwrap()),
            ifindex: 3,
        };
        let header = PacketHeader {
            remote,
            local: None,
            ifindex: 0,
            shard: 0,
            group: 0,
            ecn: 0,
            inner: false,
        };
        self.core.receive(bytes, source, &header);
    }

    /// What leaves.
    pub(super) fn sent(&mut self) -> Vec<Datagram> {
        std::mem::take(&mut self.core.outbox().datagrams)
    }

    /// The one datagram that leaves.
    pub(super) fn sent_one(&mut self) -> Datagram {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "one datagram leaves");
        sent[0]
    }

    /// What the worker was told since.
    pub(super) fn commands(&mut self) -> Vec<Command> {
        self.core.workers.flush();
        let mut commands = Vec::new();
        while let Some(command) = self.commands.pop_into(Command::decode).unwrap() {
            commands.push(command.unwrap());
        }
        self.commands.release();
        commands
    }

    /// The requests to the supervisor since.
    pub(super) fn requests(&mut self) -> Vec<(u32, Privileged)> {
        std::mem::take(&mut self.core.outbox().supervisor)
            .into_iter()
            .filter_map(|message| match message {
                FromMeta::Request { id, what } => Some((id, what)),
                _ => None,
            })
            .collect()
    }

    /// Answers every question for a route.
    pub(super) fn answer_routes(&mut self, mtu: u32, own: bool) {
        let granted = Granted::Route {
            ifindex: 2,
            mtu,
            source: None,
            own,
        };
        self.answer_routes_with(&Ok(granted));
    }

    /// The same, with this answer.
    pub(super) fn answer_routes_with(&mut self, answer: &Result<Granted, Refused>) {
        for (id, what) in self.requests() {
            if matches!(what, Privileged::RouteOf { .. }) {
                let Some(crate::meta::requests::Purpose::Route {
                    peer,
                    incarnation,
                    destination,
                    ifindex,
                }) = self.core.requests.take(id)
                else {
                    panic!("a route was asked for without a purpose");
                };
                self.core
                    .route_answer(peer, incarnation, destination, ifindex, answer);
            }
        }
    }

    /// A worker has a packet for the peer and no session.
    pub(super) fn need(&mut self, slot: PeerSlot) {
        let incarnation = self.path(slot).incarnation;
        self.core.event(Event::NeedHandshake {
            peer: slot,
            incarnation,
        });
    }

    pub(super) fn add(&mut self, peer: &Stock) -> PeerSlot {
        let slot = self.core.peer_for(peer.private.public()).unwrap();
        self.core.set_preshared_key(slot, peer.psk.clone());
        slot
    }

    pub(super) fn path(&self, slot: PeerSlot) -> PeerPath {
        self.state.peer_path(slot).unwrap()
    }

    pub(super) fn record(&self, slot: PeerSlot) -> PeerRecord {
        self.state.peer(slot).unwrap()
    }

    /// What the home worker of a lane does when the first packet of an answered session comes.
    pub(super) fn confirm(&mut self, slot: PeerSlot) {
        let next = self.core.peers.get(slot).unwrap().sessions.next.unwrap();
        self.core.event(Event::Confirmed {
            lane: next.lane,
            local_index: next.local_index,
        });
    }
}

/// A stock WireGuard peer, as far as its handshake goes.
pub(super) struct Stock {
    pub(super) private: PrivateKey,
    pub(super) psk: PresharedKey,
    pub(super) macs: MacMaker,
    checker: MacChecker,
    stamper: Stamper,
    gateway: PublicKey,
    index: u32,
}

impl Stock {
    pub(super) fn new(rig: &Rig) -> Stock {
        let private = PrivateKey::generate().unwrap();
        Stock {
            checker: MacChecker::new(&private.public()),
            private,
            psk: PresharedKey::default(),
            macs: MacMaker::new(&rig.private.public()),
            stamper: Stamper::default(),
            gateway: rig.private.public(),
            index: 77,
        }
    }

    pub(super) fn config(&self) -> PeerConfig {
        PeerConfig::new(self.private.public())
    }

    pub(super) fn initiate(&mut self, rig: &Rig) -> (InitiatorHandshake, [u8; Initiation::LEN]) {
        self.index += 1;
        let stamp = self.stamper.stamp(rig.unix);
        let (handshake, message) =
            noise::initiate(&self.private, &self.gateway, self.index, stamp).unwrap();
        let mut bytes = message.to_bytes();
        self.macs.seal(&mut bytes, rig.now());
        (handshake, bytes)
    }

    /// Answers an initiation of the gateway.
    pub(super) fn respond(
        &mut self,
        rig: &Rig,
        message: &[u8],
    ) -> ([u8; Response::LEN], SessionKeys) {
        let from = "198.51.100.1:51820".parse().unwrap();
        assert_ne!(
            self.checker.check(message, from, false, rig.now()),
            ringway_proto::cookie::MacVerdict::BadMac1
        );
        let Ok(Message::Initiation(initiation)) = Message::parse(message) else {
            panic!("no initiation")
        };
        let received = noise::receive_initiation(&self.private, &initiation).unwrap();
        assert_eq!(received.remote, self.gateway);
        self.index += 1;
        let (response, keys) = received.respond(&self.psk, self.index).unwrap();
        let mut bytes = response.to_bytes();
        self.macs.seal(&mut bytes, rig.now());
        (bytes, keys)
    }

    /// A cookie for a message of the gateway, as under load.
    pub(super) fn cookie(&mut self, rig: &Rig, message: &[u8]) -> Vec<u8> {
        let from = "198.51.100.1:51820".parse().unwrap();
        let sender = u32::from_le_bytes(message[4..8].try_into().unwrap());
        self.checker
            .cookie_reply(message, sender, from, rig.now())
            .unwrap()
            .to_bytes()
            .to_vec()
    }
}
