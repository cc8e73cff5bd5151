//! What the supervisor says: the sockets to use, and when to end.

use super::{End, Incoming, Source, Turn, Worker, system};
use crate::control::{self, FromWorker, GroupInfo, Received, ToWorker};
use crate::event::{Interest, Poller};
use crate::run::WorkerError;
use crate::sys::sockopt;
use crate::udp::group::Groups;
use ringway_shm::ids::ShardId;
use std::os::fd::{AsFd, OwnedFd};

/// Batches read from each socket that is about to be closed.
const LAST_BATCHES: usize = 16;

impl Worker {
    /// Hears the supervisor.
    pub(super) fn take_control(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        loop {
            match control::receive(self.parts.control.as_fd()) {
                Ok(Received::Message(ToWorker::Stop, _)) => {
                    turn.end = Some(End::Stopped);
                    return Ok(());
                }
                Ok(Received::Message(
                    ToWorker::Sockets {
                        generation,
                        groups,
                        part,
                        parts,
                    },
                    fds,
                )) => self.take_part(generation, groups, part, parts, fds)?,
                Ok(Received::Empty) => return Ok(()),
                Ok(Received::Closed) => {
                    turn.end = Some(End::SupervisorGone);
                    return Ok(());
                }
                Err(error) => return Err(system("hear the supervisor")(error)),
            }
        }
    }

    /// Collects the parts of a new set of sockets and takes it when it is whole.
    fn take_part(
        &mut self,
        generation: u32,
        groups: Vec<GroupInfo>,
        part: u16,
        parts: u16,
        fds: Vec<OwnedFd>,
    ) -> Result<(), WorkerError> {
        let mut incoming = match self.incoming.take() {
            Some(incoming) if incoming.generation == generation && incoming.part == part => {
                incoming
            }
            _ if part == 0 => Incoming {
                generation,
                groups,
                fds: Vec::new(),
                part: 0,
            },
            _ => {
                return Err(WorkerError::Settings(format!(
                    "part {part} of sockets {generation} came out of order"
                )));
            }
        };
        incoming.fds.extend(fds);
        incoming.part += 1;
        if incoming.part < parts {
            self.incoming = Some(incoming);
            return Ok(());
        }
        let shards = self.parts.ctx.tables.geometry.shards;
        let count = incoming.fds.len();
        let Some(groups) = Groups::new(incoming.groups, incoming.fds, shards) else {
            return Err(WorkerError::Settings(format!(
                "{count} sockets of generation {generation}: expected {shards} a group"
            )));
        };
        self.replace_groups(groups)?;
        self.say(&FromWorker::SocketsTaken { generation })
    }

    /// Empties the former sockets, then uses the new ones.
    fn replace_groups(&mut self, groups: Groups) -> Result<(), WorkerError> {
        let _ = self.egress.flush(&mut self.parts.ctx, &mut self.groups);
        self.egress.give_up(&mut self.parts.ctx);
        for (token, group, shard) in std::mem::take(&mut self.udp_tokens) {
            let Some((socket, _)) = self.groups.socket(group, shard) else {
                continue;
            };
            self.poller
                .remove(token, socket)
                .map_err(system("leave a socket"))?;
            let mut turn = Turn::default();
            for _ in 0..LAST_BATCHES {
                turn.more = false;
                self.receive(group, shard, &mut turn);
                if !turn.more {
                    break;
                }
            }
        }
        self.ingress.sockets_changed(&self.groups, &groups);
        self.groups = groups;
        self.stall = None;
        self.watch_tuns()?;
        for group in 0..self.groups.len() {
            for shard in (0..self.parts.ctx.tables.geometry.shards).map(ShardId) {
                if !self.parts.ctx.tables.owns(shard) {
                    continue;
                }
                let Some((socket, _)) = self.groups.socket(group, shard) else {
                    continue;
                };
                // A kernel without it gives datagrams one by one.
                let _ = sockopt::merge_received(socket, true);
                let token = self
                    .poller
                    .add(socket, Interest::READ, Source::Udp(group, shard))
                    .map_err(system("watch a socket"))?;
                self.udp_tokens.push((token, group, shard));
            }
        }
        Ok(())
    }

    /// Waits for the TUN queues that may be read at the moment, and for no others.
    pub(super) fn watch_tuns(&mut self) -> Result<(), WorkerError> {
        for (token, shard) in &self.tun_tokens {
            let Some(queue) = self.parts.tuns.get(shard.index()) else {
                continue;
            };
            let wanted = self.stall.is_none() && !self.failing.contains(shard);
            let interest = if wanted {
                Interest::READ
            } else {
                Interest::NONE
            };
            self.poller
                .change(*token, queue.as_fd(), interest)
                .map_err(system("watch a TUN queue"))?;
        }
        Ok(())
    }

    pub(super) fn watch_socket(
        &mut self,
        group: u8,
        shard: ShardId,
        interest: Interest,
    ) -> Result<(), WorkerError> {
        let found = self
            .udp_tokens
            .iter()
            .find(|(_, of, at)| (*of, *at) == (group, shard));
        match (found, self.groups.socket(group, shard)) {
            (Some((token, _, _)), Some((socket, _))) => self
                .poller
                .change(*token, socket, interest)
                .map_err(system("watch a socket")),
            _ => Ok(()),
        }
    }
}
