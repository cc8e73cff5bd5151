//! The way to the workers: commands, and data datagrams that came to the wrong socket.

use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::{LaneSlot, ShardId, WorkerSlot};
use ringway_shm::messages::{Command, MESSAGE_MAX, PacketHeader};
use ringway_shm::ring::Producer;
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::segment::SegmentError;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Commands that may wait for room in a full ring, a worker.
const WAITING: usize = 1 << 16;

/// One worker.
#[derive(Debug)]
struct Worker {
    commands: Producer,
    packets: Producer,
    doorbell: Option<Doorbell>,
    waiting: VecDeque<Command>,
    /// Something was pushed this turn.
    pushed: bool,
}

/// All workers, by slot.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    shards: u8,
}

impl Workers {
    /// Takes the producing ends of the rings to as many workers as there are doorbells.
    pub(crate) fn attach(
        rings: &Rings,
        doorbells: Vec<Option<Doorbell>>,
        shards: u8,
    ) -> Result<Self, SegmentError> {
        let workers = doorbells
            .into_iter()
            .enumerate()
            .map(|(number, doorbell)| {
                let to = WorkerSlot(number as u8);
                Ok(Worker {
                    commands: rings.producer(RingId::Commands { to })?,
                    packets: rings.producer(RingId::FromMeta { to })?,
                    doorbell,
                    waiting: VecDeque::new(),
                    pushed: false,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { workers, shards })
    }

    /// Tells every worker.
    pub(crate) fn broadcast(&mut self, command: Command) {
        for worker in &mut self.workers {
            worker.command(command);
        }
    }

    /// Tells the worker at home with this lane.
    pub(crate) fn tell_home(&mut self, rings: &Rings, lane: LaneSlot, command: Command) {
        if let Some(worker) = self.home(rings, lane.0) {
            worker.command(command);
        }
    }

    /// Has a lane zeroed by its home worker. `false`: the ring is full, try again.
    pub(crate) fn clean_lane(&mut self, rings: &Rings, lane: LaneSlot) -> bool {
        self.home(rings, lane.0).is_some_and(|worker| {
            worker.waiting.is_empty() && worker.push(Command::CleanLane { lane })
        })
    }

    /// Hands a data datagram to the worker at home with its receiver index. `false`: no room.
    pub(crate) fn hand_over(
        &mut self,
        rings: &Rings,
        index: u32,
        header: PacketHeader,
        datagram: &[u8],
    ) -> bool {
        let shard = (index as u8) & (self.shards - 1);
        let header = PacketHeader { shard, ..header };
        let Some(worker) = self.home(rings, index) else {
            return false;
        };
        let room = worker
            .packets
            .push(PacketHeader::KIND, &[&header.encode(), datagram])
            .is_ok();
        worker.pushed |= room;
        room
    }

    /// Shows what was pushed and wakes who sleeps: once a turn. `true`: commands still wait for room.
    pub(crate) fn flush(&mut self) -> bool {
        let mut waits = false;
        for worker in &mut self.workers {
            while let Some(command) = worker.waiting.front().copied() {
                if !worker.push(command) {
                    waits = true;
                    break;
                }
                worker.waiting.pop_front();
            }
            if std::mem::take(&mut worker.pushed) {
                let asleep = worker.commands.publish() | worker.packets.publish();
                if let Some(doorbell) = worker.doorbell.as_ref().filter(|_| asleep) {
                    doorbell.ring();
                }
            }
        }
        waits
    }

    fn home(&mut self, rings: &Rings, index: u32) -> Option<&mut Worker> {
        let shard = ShardId((index as u8) & (self.shards - 1));
        let owner = rings.shard_owner(shard).load(Ordering::Acquire);
        self.workers.get_mut(owner as usize)
    }
}

impl Worker {
    fn command(&mut self, command: Command) {
        // In order, and past the bound it is a worker that has stopped: it finds out from the
        // tables when it comes back.
        if (!self.waiting.is_empty() || !self.push(command)) && self.waiting.len() < WAITING {
            self.waiting.push_back(command);
        }
    }

    fn push(&mut self, command: Command) -> bool {
        let mut bytes = [0; MESSAGE_MAX];
        let length = command.encode(&mut bytes);
        let room = self
            .commands
            .push(command.kind(), &[&bytes[..length]])
            .is_ok();
        self.pushed |= room;
        room
    }
}
