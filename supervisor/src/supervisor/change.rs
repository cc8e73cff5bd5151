//! The interface's part of a reload, done piece by piece between turns of the loop: name servers
//! take a command, and routes can be many.

use super::{Hooks, Supervisor};
use crate::channel::{Granted, InterfaceChange, Refused, ToMeta};
use crate::dns::{self, Dns};
use crate::interface::{self, RouteWork, Wanted};
use crate::job::Job;
use crate::sockets;
use nix::libc;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A change under way.
#[derive(Debug)]
pub(super) struct Change {
    /// Meta's number.
    id: u32,
    /// The firewall mark that a default route needed.
    chosen: Option<u32>,
    routes: Option<RouteWork>,
    job: Option<Job>,
    /// What is set when the job is done.
    dns: Dns,
}

impl Change {
    /// Readable when there is something to go on with.
    pub(super) fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.job.as_ref().map(AsFd::as_fd)
    }

    /// How long the loop may sleep.
    pub(super) fn remaining(&self) -> Duration {
        match &self.job {
            Some(job) => job.remaining(),
            None => Duration::ZERO,
        }
    }

    /// The process that it waits for.
    pub(super) fn pid(&self) -> Option<u32> {
        self.job.as_ref().map(Job::pid)
    }
}

impl Supervisor<'_> {
    /// Begins; meta is answered when all is done.
    pub(super) fn begin_change(&mut self, id: u32, change: InterfaceChange) {
        match self.begin(id, change) {
            Ok(change) => self.change = Some(change),
            Err(refused) => self.answer_meta(id, Err(refused)),
        }
    }

    fn begin(&mut self, id: u32, change: InterfaceChange) -> Result<Change, Refused> {
        self.remarks.clear();
        self.hooks = Hooks {
            pre_down: change.pre_down,
            post_down: change.post_down,
            save_config: change.save_config,
        };
        self.change_mtu(change.mtu)?;
        let dns = Dns {
            servers: change.dns,
            search: change.dns_search,
        };
        let mut begun = Change {
            id,
            chosen: None,
            routes: None,
            job: None,
            dns,
        };
        if interface::reachable(self.whereabouts) {
            let routes = self.published_routes();
            let routes = routes.map_err(|error| Refused::new(libc::EIO, &error))?;
            let chosen =
                interface::choose_mark(&mut self.netlink, change.table, self.fwmark, &routes)
                    .map_err(|error| Refused::new(error.errno(), &error))?;
            if let Some(mark) = chosen {
                sockets::set_fwmark(&self.groups, mark)
                    .map_err(|error| Refused::new(error.errno(), &error))?;
                self.listen.fwmark = mark;
                self.fwmark = chosen;
                begun.chosen = chosen;
            }
            let wanted = Wanted {
                name: &self.link.name,
                index: self.link.index,
                addresses: &change.addresses,
                routes: &routes,
                table: change.table,
                fwmark: self.fwmark,
            };
            let work = self
                .setup
                .addresses(&mut self.netlink, wanted)
                .and_then(|()| self.setup.begin_routes(&mut self.netlink, wanted))
                .map_err(|error| Refused::new(error.errno(), &error))?;
            begun.routes = Some(work);
        } else {
            self.remarks.push(
                "the interface is in another network namespace, where its addresses, MTU and routes are left as they are"
                    .to_owned(),
            );
        }
        let name = self.plan.cli.name();
        if begun.dns != self.dns {
            let job = if begun.dns.is_empty() {
                dns::start_unset(name)
            } else {
                dns::start_set(name, &begun.dns)
            };
            begun.job = Some(job.map_err(|error| Refused::new(libc::EIO, &error))?);
        }
        self.note_leftovers(!begun.dns.is_empty());
        Ok(begun)
    }

    fn change_mtu(&mut self, mtu: Option<u16>) -> Result<(), Refused> {
        let former = std::mem::replace(&mut self.mtu, mtu);
        if !interface::reachable(self.whereabouts) {
            return Ok(());
        }
        if let Some(mtu) = mtu {
            return self
                .netlink
                .set_link_mtu(self.link.index, mtu.into())
                .map_err(|error| Refused::new(error.errno(), &error));
        }
        if let Some(former) = former {
            self.remarks.push(format!(
                "the file has no MTU any more: it stays at {former} until the next start"
            ));
        }
        Ok(())
    }

    /// Does the next piece, if there is one to do now.
    pub(super) fn go_on_with_change(&mut self) {
        let Some(mut change) = self.change.take() else {
            return;
        };
        match self.go_on(&mut change) {
            Ok(false) => self.change = Some(change),
            Ok(true) => {
                self.note_leftovers(false);
                let fwmark = change.chosen;
                self.answer_meta(change.id, Ok(Granted::Interface { fwmark }));
            }
            Err(refused) => self.answer_meta(change.id, Err(refused)),
        }
    }

    fn go_on(&mut self, change: &mut Change) -> Result<bool, Refused> {
        if let Some(job) = &mut change.job {
            match job.outcome() {
                None => return Ok(false),
                Some(Err(error)) => {
                    let message = format!("DNS: {error}");
                    return Err(Refused::new(libc::EIO, &message));
                }
                Some(Ok(())) => self.dns = std::mem::take(&mut change.dns),
            }
            change.job = None;
        }
        match &mut change.routes {
            Some(work) => self
                .setup
                .go_on(&mut self.netlink, work)
                .map_err(|error| Refused::new(error.errno(), &error)),
            None => Ok(true),
        }
    }

    /// Answers a request of meta's.
    pub(super) fn answer_meta(&mut self, id: u32, result: Result<Granted, Refused>) {
        self.tell_meta(&ToMeta::Answer { id, result });
    }
}
