//! What workers report and hand over, and what the sockets give: a bounded part of each a turn.

use super::super::MetaError;
use super::super::sockets::BATCH;
use super::super::source::Source;
use super::{BATCHES, DATAGRAMS, EVENTS, FLOOD_BATCHES, HANDSHAKES, Loop, boot_clock};
use nix::sys::epoll::EpollFlags;
use ringway_shm::counters::DropReason;
use ringway_shm::messages::{Event, PacketHeader};

impl Loop {
    pub(super) fn take_events(&mut self) {
        for ring in &mut self.events {
            for taken in 0.. {
                if taken == EVENTS {
                    self.again = true;
                    break;
                }
                match ring.pop_into(Event::decode) {
                    Ok(Some(Some(event))) => self.core.event(event),
                    Ok(Some(None)) => self
                        .rings
                        .meta_counters()
                        .dropped(DropReason::RingCorrupt, 1),
                    Ok(None) | Err(_) => break,
                }
            }
            ring.release();
        }
    }

    pub(super) fn take_handed_over(&mut self) {
        let core = &mut self.core;
        for ring in &mut self.datagrams {
            for taken in 0.. {
                if taken == DATAGRAMS {
                    self.again = true;
                    break;
                }
                let took = ring.pop_into(|kind, record| {
                    let decoded = (kind == PacketHeader::KIND)
                        .then(|| PacketHeader::decode(record))
                        .flatten();
                    match decoded.filter(|(header, _)| !header.inner) {
                        Some((header, datagram)) => {
                            let source = Source {
                                remote: header.remote,
                                local: header.local,
                                ifindex: header.ifindex,
                            };
                            core.receive(datagram, source, &header);
                        }
                        None => core
                            .rings
                            .meta_counters()
                            .dropped(DropReason::RingCorrupt, 1),
                    }
                });
                if !matches!(took, Ok(Some(()))) {
                    break;
                }
            }
            ring.release();
        }
    }

    pub(super) fn receive(&mut self, number: usize, events: EpollFlags) {
        let Some(socket) = self.sockets.get_mut(number) else {
            return;
        };
        if events.contains(EpollFlags::EPOLLERR) {
            socket.drain_errors();
        }
        let core = &mut self.core;
        let batches = if self.flood.is_on() {
            FLOOD_BATCHES
        } else {
            BATCHES
        };
        for _ in 0..batches {
            let count = socket.receive(
                number as u8,
                &mut self.buffers,
                |datagram, source, header| match datagram {
                    Some(datagram) => core.receive(datagram, source, header),
                    None => core.rings.meta_counters().dropped(DropReason::Oversized, 1),
                },
            );
            if count < BATCH {
                return;
            }
        }
    }

    pub(super) fn work_off(&mut self) -> Result<(), MetaError> {
        let end = boot_clock()? + HANDSHAKES;
        while self.core.work_off() {
            if boot_clock()? >= end {
                break;
            }
        }
        self.again |= self.core.waiting() != 0;
        Ok(())
    }
}
