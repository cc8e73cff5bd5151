//! What meta and the tools ask for.

use super::{Asked, End, Phase, Supervisor};
use crate::channel::{Granted, Privileged, Refused, ToMeta};
use crate::control::Token;
use crate::interface;
use crate::netlink::Whereabouts;
use crate::sockets::{self, Listen};
use nix::libc;
use ringway_proto::control::{Info, ReadableSegment, Request, Response, SocketInfo};
use ringway_proto::prefix::Prefix;
use ringway_shm::ids::WorkerSlot;
use ringway_shm::process::Role;
use ringway_shm::segment::{Access, Segment, SegmentError, SegmentKind};
use ringway_shm::state::State;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many former sets of sockets may be open at a time.
const RETIRING: usize = 8;
/// How long a change of port waits until there are fewer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor<'_> {
    /// Does what meta may not do itself.
    pub(super) fn grant(&mut self, id: u32, what: Privileged) {
        let result = match what {
            Privileged::Listen {
                port,
                addresses,
                device,
                fwmark,
            } => {
                let listen = Listen {
                    port,
                    addresses,
                    device,
                    fwmark,
                };
                if self.retiring.len() >= RETIRING {
                    self.delayed.push((id, listen, Instant::now() + PATIENCE));
                    return;
                }
                self.listen(listen)
            }
            Privileged::Fwmark(fwmark) => self.change_mark(fwmark),
            Privileged::Interface(change) => return self.begin_change(id, change),
            Privileged::RouteOf {
                destination,
                fwmark,
                ifindex,
            } => self.route_of(destination, fwmark, ifindex),
        };
        self.answer_meta(id, result);
    }

    fn change_mark(&mut self, fwmark: u32) -> Result<Granted, Refused> {
        sockets::set_fwmark(&self.groups, fwmark)
            .map_err(|error| Refused::new(error.errno(), &error))?;
        self.listen.fwmark = fwmark;
        self.fwmark = (fwmark != 0).then_some(fwmark);
        Ok(Granted::Done)
    }

    fn listen(&mut self, listen: Listen) -> Result<Granted, Refused> {
        let shards = self.plan.settings.shards;
        // What was left a moment ago is still open, and is taken back.
        let mut present = self.groups.clone();
        present.extend(self.retiring.iter().flat_map(|(_, groups)| groups).cloned());
        let (groups, port) = sockets::open(&listen, shards, &present)
            .map_err(|error| Refused::new(error.errno(), &error))?;
        let same = groups.len() == self.groups.len()
            && groups
                .iter()
                .zip(&self.groups)
                .all(|(new, old)| Arc::ptr_eq(new, old));
        self.listen = Listen { port, ..listen };
        if !same {
            let former = std::mem::replace(&mut self.groups, groups);
            self.generation += 1;
            self.retiring.push((self.generation, former));
            self.hand_out_sockets()
                .map_err(|error| Refused::new(libc::EIO, &error))?;
            tracing::info!(port, "listening");
        }
        Ok(Granted::Listening { port })
    }

    /// Listens elsewhere at last, once the processes have let go of enough former sockets.
    pub(super) fn listen_delayed(&mut self) {
        let now = Instant::now();
        for (id, listen, until) in std::mem::take(&mut self.delayed) {
            if self.retiring.len() < RETIRING {
                let result = self.listen(listen);
                self.answer_meta(id, result);
            } else if now >= until {
                let why = format!(
                    "port {}: the processes still hold the sockets of {RETIRING} former ports: try again",
                    listen.port
                );
                self.answer_meta(id, Err(Refused::new(libc::EBUSY, &why)));
            } else {
                self.delayed.push((id, listen, until));
            }
        }
    }

    /// Every allowed IP of every peer, as the workers see them.
    pub(super) fn published_routes(&self) -> Result<Vec<Prefix>, SegmentError> {
        let fd = self.segments.state.readable.as_fd();
        let segment = Segment::attach(fd, SegmentKind::State, Access::ReadOnly)?;
        let routes = State::attach(&segment)?.routes().entries();
        Ok(routes
            .iter()
            .filter_map(|route| Prefix::new(route.address, route.length).ok())
            .collect())
    }

    fn route_of(
        &mut self,
        destination: SocketAddr,
        fwmark: u32,
        ifindex: u32,
    ) -> Result<Granted, Refused> {
        let by = match &self.listen.device {
            // All that is sent leaves by it, whatever the tables say of other devices.
            Some(device) if ifindex == 0 => {
                let link = self.netlink.link_named(device, Whereabouts::Here);
                link.map_err(|error| Refused::new(error.errno(), &error))?
                    .index
            }
            _ => ifindex,
        };
        let hop = self
            .netlink
            .route_by(destination, fwmark, by)
            .map_err(|error| Refused::new(error.errno(), &error))?;
        let mtu = if let Some(mtu) = hop.mtu {
            mtu
        } else {
            let link = self.netlink.link(hop.ifindex, None);
            link.map_err(|error| Refused::new(error.errno(), &error))?
                .mtu
        };
        let own = interface::reachable(self.whereabouts) && hop.ifindex == self.link.index;
        Ok(Granted::Route {
            ifindex: hop.ifindex,
            mtu,
            source: hop.source,
            own,
        })
    }

    /// Does or begins what a tool asks.
    pub(super) fn handle_request(&mut self, from: Token, request: &Request) {
        match request {
            Request::Segments => {
                let segments = vec![ReadableSegment::State, ReadableSegment::Rings];
                let fds = [
                    self.segments.state.readable.as_fd(),
                    self.segments.rings.readable.as_fd(),
                ];
                self.control
                    .answer(from, &Response::Segments { segments }, &fds);
            }
            Request::Info => {
                let info = Response::Info(Box::new(self.info()));
                self.control.answer(from, &info, &[]);
            }
            Request::Stop => {
                self.stop_waiters.push(from);
                if self.end.is_none() {
                    tracing::info!("stop was asked for");
                }
                self.end(End::Asked);
            }
            Request::Reload { .. } | Request::SaveConfig if self.phase != Phase::Running => {
                let message =
                    "the gateway is starting or stopping: try again when it runs".to_owned();
                self.control.answer(from, &Response::Error { message }, &[]);
            }
            Request::Reload { keep_runtime } => self.reload(*keep_runtime, Some(from)),
            Request::SaveConfig => {
                let id = self.ask(Some(from));
                self.tell_meta(&ToMeta::Save { id });
            }
        }
    }

    /// Has meta read the configuration again.
    pub(super) fn reload(&mut self, keep_runtime: bool, from: Option<Token>) {
        if self.plan.config_path.is_none() {
            let message =
                "this gateway has no configuration file: it is configured by wg".to_owned();
            if let Some(from) = from {
                self.control.answer(from, &Response::Error { message }, &[]);
            } else {
                tracing::warn!("{message}");
            }
            return;
        }
        let id = self.ask(from);
        self.tell_meta(&ToMeta::Reload { id, keep_runtime });
    }

    /// A number for a request to meta, and who waits for it.
    pub(super) fn ask(&mut self, from: Option<Token>) -> u32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.asked.push(Asked {
            id: self.last_id,
            from,
        });
        self.last_id
    }

    /// Passes meta's word on to whoever asked.
    pub(super) fn finish_asked(&mut self, id: u32, result: Result<String, String>) {
        let Some(at) = self.asked.iter().position(|asked| asked.id == id) else {
            return;
        };
        let asked = self.asked.swap_remove(at);
        let result = result.map(|remark| {
            let mut remarks = std::mem::take(&mut self.remarks);
            if !remark.is_empty() {
                remarks.push(remark);
            }
            remarks.join("; ")
        });
        match &result {
            Ok(remark) if remark.is_empty() => {}
            Ok(remark) => tracing::info!("{remark}"),
            Err(why) => tracing::error!("{why}"),
        }
        if let Some(from) = asked.from {
            let response = match result {
                Ok(remark) if remark.is_empty() => Response::Ok,
                Ok(remark) => Response::Noted { remark },
                Err(message) => Response::Error { message },
            };
            self.control.answer(from, &response, &[]);
        }
    }

    fn info(&self) -> Info {
        let workers = 0..self.plan.settings.workers;
        Info {
            name: self.plan.cli.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            meta_pid: self.pid_of(Role::Meta),
            helper_pid: self.pid_of(Role::Helper),
            worker_pids: workers
                .map(|slot| self.pid_of(Role::Worker(WorkerSlot(slot))))
                .collect(),
            started_unix_ns: self.started_unix_ns,
            config_path: self.plan.config_path.clone(),
            poll: self.plan.settings.poll,
            shards: self.plan.settings.shards,
            sockets: self
                .groups
                .iter()
                .map(|group| SocketInfo {
                    address: group.info.address,
                    port: group.info.port,
                    device: group.device.clone(),
                    fwmark: self.listen.fwmark,
                })
                .collect(),
        }
    }
}
