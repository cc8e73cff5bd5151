//! From descriptors to a loop.

use super::super::core::{Core, Parts};
use super::super::flood::Flood;
use super::super::link::{Helper, Supervisor};
use super::super::sockets::Buffers;
use super::super::uapi::Server;
use super::super::workers::Workers;
use super::super::{MetaError, MetaFds, MetaSettings};
use super::clients::Clients;
use super::{CONTROL, DOORBELL, HELPER, Loop, clocks};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollFlags};
use ringway_proto::timers::Constants;
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::WorkerSlot;
use ringway_shm::keys::KeysWriter;
use ringway_shm::lanes::Lanes;
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::segment::{Access, Segment, SegmentKind};
use ringway_shm::state::StateWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

impl Loop {
    pub(super) fn attach(fds: MetaFds, settings: MetaSettings) -> Result<Self, MetaError> {
        let segment = |fd: &OwnedFd, kind, access| {
            Segment::attach(fd.as_fd(), kind, access)
                .map_err(|error| MetaError::Segment(error.to_string()))
        };
        let wrong =
            |error: ringway_shm::segment::SegmentError| MetaError::Segment(error.to_string());
        let state = segment(&fds.state, SegmentKind::State, Access::ReadWrite)?;
        let keys = segment(&fds.keys, SegmentKind::Keys, Access::ReadWrite)?;
        let lanes = segment(&fds.lanes, SegmentKind::Lanes, Access::ReadOnly)?;
        let rings_segment = segment(&fds.rings, SegmentKind::Rings, Access::ReadWrite)?;
        let rings = Rings::attach(&rings_segment).map_err(wrong)?;
        let mut doorbells = fds.doorbells.into_iter().map(Doorbell::from_fd);
        // The supervisor's, ours, the helper's; the workers' follow.
        let (Some(_), Some(doorbell), Some(_)) =
            (doorbells.next(), doorbells.next(), doorbells.next())
        else {
            return Err(MetaError::Segment("doorbells are missing".into()));
        };
        let bells: Vec<_> = doorbells.take(settings.workers.into()).map(Some).collect();
        let slots = (0..settings.workers).map(WorkerSlot);
        let events = slots
            .clone()
            .map(|from| rings.consumer(RingId::Events { from }))
            .collect::<Result<_, _>>();
        let datagrams = slots
            .map(|from| rings.consumer(RingId::ToMeta { from }))
            .collect::<Result<_, _>>();
        let (now, unix_ns) = clocks()?;
        let parts = Parts {
            workers: Workers::attach(&rings, bells, settings.shards).map_err(wrong)?,
            geometry: state.geometry(),
            state: StateWriter::attach(&state).map_err(wrong)?,
            keys: KeysWriter::attach(&keys).map_err(wrong)?,
            lanes: Lanes::attach(&lanes).map_err(wrong)?,
            rings: rings.clone(),
            constants: Constants::from_env().map_err(MetaError::Settings)?,
        };
        let mut this = Self {
            core: Core::new(parts, now, unix_ns),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            supervisor: Supervisor::new(fds.control)?,
            helper: Helper::new(fds.helper)?,
            server: Server::new(fds.uapi)?,
            sockets: Vec::new(),
            buffers: Buffers::new(),
            doorbell,
            events: events.map_err(wrong)?,
            datagrams: datagrams.map_err(wrong)?,
            rings,
            reload: None,
            ready_due: false,
            started: false,
            stopping: false,
            again: true,
            soon: false,
            clients: Clients::default(),
            helper_watched: EpollFlags::EPOLLIN,
            tidied: now,
            full_until: None,
            flood: Flood::new(now),
            busy: Duration::ZERO,
        };
        this.watch(CONTROL, EpollFlags::EPOLLIN)?;
        this.watch(DOORBELL, EpollFlags::EPOLLIN)?;
        this.watch(HELPER, EpollFlags::EPOLLIN)?;
        Ok(this)
    }
}
