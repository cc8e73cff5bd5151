//! What meta and the tools ask for.

use super::{Asked, End, Phase, Supervisor};
use crate::channel::{Granted, InterfaceChange, Privileged, Refused, ToMeta};
use crate::control::Token;
use crate::interface::{self, Wanted};
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

impl Supervisor<'_> {
    /// Does what meta may not do itself.
    pub(super) fn grant(&mut self, what: Privileged) -> Result<Granted, Refused> {
        match what {
            Privileged::Listen { port, addresses, device, fwmark } => {
                self.listen(Listen { port, addresses, device, fwmark })
            }
            Privileged::Fwmark(fwmark) => {
                sockets::set_fwmark(&self.groups, fwmark).map_err(|error| refused(error.errno(), &error))?;
                self.listen.fwmark = fwmark;
                self.fwmark = (fwmark != 0).then_some(fwmark);
                Ok(Granted::Done)
            }
            Privileged::Interface(change) => self.change_interface(&change),
            Privileged::RouteOf { destination, fwmark } => self.route_of(destination, fwmark),
        }
    }

    fn listen(&mut self, listen: Listen) -> Result<Granted, Refused> {
        let shards = self.plan.settings.shards;
        let (groups, port) =
            sockets::open(&listen, shards, &self.groups).map_err(|error| refused(error.errno(), &error))?;
        let same = groups.len() == self.groups.len()
            && groups.iter().zip(&self.groups).all(|(new, old)| Arc::ptr_eq(new, old));
        self.listen = Listen { port, ..listen };
        if !same {
            let former = std::mem::replace(&mut self.groups, groups);
            self.generation += 1;
            self.retiring.push((self.generation, former));
            self.hand_out_sockets().map_err(|error| refused(libc::EIO, &error))?;
            tracing::info!(port, "listening");
        }
        Ok(Granted::Listening { port })
    }

    fn change_interface(&mut self, change: &InterfaceChange) -> Result<Granted, Refused> {
        if !interface::reachable(self.whereabouts) {
            let message = "the interface is in another network namespace: set its addresses and routes there";
            return Err(refused(libc::EOPNOTSUPP, &message));
        }
        let table = self.plan.config.interface.table;
        let routes = self.published_routes().map_err(|error| refused(libc::EIO, &error))?;
        let chosen = interface::choose_mark(&mut self.netlink, table, self.fwmark, &routes)
            .map_err(|error| refused(error.errno(), &error))?;
        if let Some(mark) = chosen {
            sockets::set_fwmark(&self.groups, mark).map_err(|error| refused(error.errno(), &error))?;
            self.listen.fwmark = mark;
            self.fwmark = chosen;
        }
        let wanted = Wanted {
            name: &self.link.name,
            index: self.link.index,
            addresses: &change.addresses,
            routes: &routes,
            table,
            fwmark: self.fwmark,
        };
        self.setup.addresses(&mut self.netlink, wanted).map_err(|error| refused(error.errno(), &error))?;
        if let Some(mtu) = change.mtu {
            self.netlink
                .set_link_mtu(self.link.index, Whereabouts::Here, u32::from(mtu))
                .map_err(|error| refused(error.errno(), &error))?;
        }
        self.setup.routes(&mut self.netlink, wanted).map_err(|error| refused(error.errno(), &error))?;
        Ok(Granted::Interface { fwmark: chosen })
    }

    /// Every allowed IP of every peer, as the workers see them.
    fn published_routes(&self) -> Result<Vec<Prefix>, SegmentError> {
        let fd = self.segments.state.readable.as_fd();
        let segment = Segment::attach(fd, SegmentKind::State, Access::ReadOnly)?;
        let routes = State::attach(&segment)?.routes().entries();
        Ok(routes.iter().filter_map(|route| Prefix::new(route.address, route.length).ok()).collect())
    }

    fn route_of(&mut self, destination: SocketAddr, fwmark: u32) -> Result<Granted, Refused> {
        let hop = self.netlink.route_of(destination, fwmark).map_err(|error| refused(error.errno(), &error))?;
        let mtu = if let Some(mtu) = hop.mtu {
            mtu
        } else {
            let link = self.netlink.link(hop.ifindex, None);
            link.map_err(|error| refused(error.errno(), &error))?.mtu
        };
        let own = interface::reachable(self.whereabouts) && hop.ifindex == self.link.index;
        Ok(Granted::Route { ifindex: hop.ifindex, mtu, source: hop.source, own })
    }

    /// Does or begins what a tool asks.
    pub(super) fn handle_request(&mut self, from: Token, request: &Request) {
        match request {
            Request::Segments => {
                let segments = vec![ReadableSegment::State, ReadableSegment::Rings];
                let fds = [self.segments.state.readable.as_fd(), self.segments.rings.readable.as_fd()];
                self.control.answer(from, &Response::Segments { segments }, &fds);
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
                let message = "the gateway is starting or stopping: try again when it runs".to_owned();
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
            let message = "this gateway has no configuration file: it is configured by wg".to_owned();
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
        self.asked.push(Asked { id: self.last_id, from });
        self.last_id
    }

    /// Passes meta's word on to whoever asked.
    pub(super) fn finish_asked(&mut self, id: u32, result: Result<String, String>) {
        let Some(at) = self.asked.iter().position(|asked| asked.id == id) else {
            return;
        };
        let asked = self.asked.swap_remove(at);
        match &result {
            Ok(remark) if remark.is_empty() => {}
            Ok(remark) => tracing::info!("{remark}"),
            Err(why) => tracing::error!("{why}"),
        }
        if let Some(from) = asked.from {
            let response = match result {
                Ok(_) => Response::Ok,
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
            worker_pids: workers.map(|slot| self.pid_of(Role::Worker(WorkerSlot(slot)))).collect(),
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

fn refused(errno: i32, error: &dyn std::fmt::Display) -> Refused {
    Refused { errno, message: error.to_string() }
}
