//! From nothing to a running gateway.

use super::revival::Revival;
use super::{End, Hooks, Phase, Plan, Supervisor, SupervisorError};
use crate::channel::{self, Start, ToMeta};
use crate::control::Server;
use crate::dns::Dns;
use crate::interface::{self, Setup, Wanted};
use crate::leftovers::Leftovers;
use crate::netlink::watch::{AddressWatch, LinkWatch};
use crate::netlink::{Rtnetlink, Whereabouts};
use crate::segments::Segments;
use crate::sockets::{self, Groups, Listen};
use crate::tun::Tun;
use crate::watch::Signals;
use crate::{cores, dns, fault, fds, hooks, sys};
use ringway_shm::doorbell::Doorbell;
use ringway_shm::process::Role;
use ringway_shm::segment::Geometry;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

/// How long the processes may take to be ready: a configuration of a million routes takes seconds.
const READY_LIMIT: Duration = Duration::from_secs(60);

fn system(what: &'static str) -> impl Fn(io::Error) -> SupervisorError {
    move |error| SupervisorError::System { what, error }
}

impl<'a> Supervisor<'a> {
    /// Makes everything that the processes are given; starts none.
    pub(super) fn create(
        plan: &'a Plan,
        signals: Signals,
    ) -> Result<Supervisor<'a>, SupervisorError> {
        let settings = &plan.settings;
        let given = settings.cpus_given;
        let cpus = cores::spread(
            plan.runtime.directory(),
            &settings.cpus,
            given,
            settings.workers,
        );
        fault::at("descriptors")?;
        let last = fds::tun(settings.workers) + i32::from(settings.shards);
        let reserved = sys::reserve(last).map_err(system("descriptors"))?;
        fault::at("segments")?;
        let limits = plan.config.interface.limits;
        let geometry = Geometry::new(settings.shards, limits.peers, limits.routes)?;
        let segments = Segments::create(geometry, settings.workers)?;
        let doorbells = (0..fds::doorbells(settings.workers))
            .map(|_| Doorbell::create())
            .collect::<io::Result<Vec<_>>>()
            .map_err(system("doorbells"))?;

        fault::at("netlink")?;
        let mut netlink = Rtnetlink::open().map_err(system("netlink"))?;
        let links = LinkWatch::open().map_err(system("watch on links"))?;
        let addresses = AddressWatch::open().map_err(system("watch on addresses"))?;
        let configured = &plan.config.interface;
        let routes = interface::allowed_ips(&plan.config);
        let chosen =
            interface::choose_mark(&mut netlink, configured.table, configured.fwmark, &routes)?;
        let fwmark = configured.fwmark.or(chosen);
        let listen = Listen {
            port: configured.listen_port.unwrap_or(0),
            addresses: configured.listen_addresses.clone(),
            device: configured.bind_device.clone(),
            fwmark: fwmark.unwrap_or(0),
        };
        fault::at("sockets")?;
        let (groups, port) = sockets::open(&listen, settings.shards, &Groups::new())?;
        fault::at("control")?;
        let control = Server::new(plan.runtime.listen_control()?, plan.runtime.readers());
        fault::at("uapi")?;
        let uapi = plan.runtime.listen_uapi()?;
        let name = plan.cli.name();
        fault::at("tun")?;
        let tun = Tun::create(name, settings.shards)?;
        fault::at("link")?;
        let mut link = netlink.link_named(name, Whereabouts::Here)?;
        link.mtu = match (configured.mtu, &plan.config_path) {
            (Some(mtu), _) => u32::from(mtu),
            (None, Some(_)) => interface::default_mtu(&mut netlink, &plan.config),
            (None, None) => interface::DEFAULT_MTU,
        };
        netlink.set_link_mtu(link.index, link.mtu)?;
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Supervisor {
            plan,
            _reserved: reserved,
            signals,
            segments,
            doorbells,
            tun: Some(tun),
            listen: Listen { port, ..listen },
            groups,
            generation: 1,
            retiring: Vec::new(),
            delayed: Vec::new(),
            children: Vec::new(),
            helper: Revival::default(),
            looked_ns: 0,
            awake_since_ns: 0,
            netlink,
            links,
            addresses,
            link,
            whereabouts: Whereabouts::Here,
            setup: Setup::default(),
            fwmark,
            mtu: configured.mtu,
            dns: Dns::default(),
            hooks: Hooks {
                pre_down: configured.pre_down.clone(),
                post_down: configured.post_down.clone(),
                save_config: configured.save_config,
            },
            change: None,
            remarks: Vec::new(),
            job: None,
            control,
            uapi: Some(uapi),
            cpus,
            asked: Vec::new(),
            last_id: 0,
            stop_waiters: Vec::new(),
            phase: Phase::Starting,
            asked_again: false,
            end: None,
            started_unix_ns: since_epoch.as_nanos() as u64,
        })
    }

    /// Starts the processes, waits until they run, and brings the interface to what is configured.
    pub(super) fn start(&mut self) -> Result<(), SupervisorError> {
        fault::at("pid")?;
        self.plan.runtime.write_pid()?;
        self.claim_slots();
        self.clean_up_after_predecessor();
        let (to_helper, to_meta) = UnixStream::pair().map_err(system("socket pair"))?;
        fault::at("helper")?;
        self.spawn_helper(to_meta.as_fd())?;
        fault::at("meta")?;
        // Only the two processes may hold these: a listener or a stream kept here would never end.
        if let Some(uapi) = self.uapi.take() {
            self.spawn_meta(uapi.as_fd(), to_helper.as_fd())?;
        }
        drop((to_helper, to_meta));
        for slot in 0..self.plan.settings.workers {
            self.spawn_worker(slot)?;
            fault::at("worker")?;
        }
        self.brief_meta()?;
        fault::at("briefing")?;
        self.hand_out_sockets()?;
        self.wait_until_ready()?;
        fault::at("ready")?;
        self.run_hooks("PreUp", &self.plan.config.interface.pre_up)?;
        fault::at("PreUp")?;
        if self.plan.config_path.is_some() {
            self.bring_up()?;
        }
        self.refresh_link();
        self.run_hooks("PostUp", &self.plan.config.interface.post_up)?;
        fault::at("PostUp")?;
        self.turn(None, Duration::ZERO);
        self.check_end()
    }

    /// Takes back what a predecessor that was killed could not.
    fn clean_up_after_predecessor(&mut self) {
        let found = Leftovers::read(self.plan.runtime.directory());
        let mut predecessor = Setup::default();
        predecessor.inherit(&found.diversions);
        predecessor.undo(&mut self.netlink);
        if found.dns {
            let job = dns::start_unset(self.plan.cli.name());
            let done = job.and_then(|job| Ok(self.finish(job)?));
            if let Err(error) = done {
                tracing::warn!("{error}");
            }
        }
        self.note_leftovers(false);
    }

    /// Notes what would outlive this process if it were killed.
    pub(super) fn note_leftovers(&self, dns_soon: bool) {
        let leftovers = Leftovers {
            diversions: self.setup.diversions(),
            dns: dns_soon || !self.dns.is_empty(),
        };
        if let Err(error) = leftovers.write(self.plan.runtime.directory()) {
            tracing::warn!("{}: {error}", self.plan.runtime.directory().display());
        }
    }

    /// Gives meta its first message, with the mark that the default route needs put in.
    fn brief_meta(&mut self) -> Result<(), SupervisorError> {
        let mut config = self.plan.config.clone();
        config.interface.fwmark = self.fwmark;
        let failed = |error| SupervisorError::Channel {
            to: "meta".to_owned(),
            error,
        };
        let memfd = channel::write_config(&config).map_err(failed)?;
        let start = Start {
            name: self.plan.cli.name().to_owned(),
            config_path: self.plan.config_path.clone(),
            mtu: self.link.mtu,
        };
        self.send_meta(&ToMeta::Start(start), &[memfd.as_fd()])
    }

    /// Waits until every process runs and uses its sockets.
    fn wait_until_ready(&mut self) -> Result<(), SupervisorError> {
        let generation = self.generation;
        let ready = |supervisor: &Supervisor<'_>| {
            supervisor.children.iter().all(|child| {
                child.role == Role::Helper || (child.ready && child.generation >= generation)
            })
        };
        let done = self.turn_until(READY_LIMIT, ready);
        self.check_end()?;
        if !done {
            let late = self
                .children
                .iter()
                .find(|child| child.role != Role::Helper && !child.ready);
            let name = late.map_or_else(|| "a process".to_owned(), crate::spawn::Child::name);
            return Err(SupervisorError::NotReady(name, READY_LIMIT.as_secs()));
        }
        Ok(())
    }

    /// Addresses, link up, name servers, routes: in wg-quick's order.
    fn bring_up(&mut self) -> Result<(), SupervisorError> {
        let configured = &self.plan.config.interface;
        let routes = interface::allowed_ips(&self.plan.config);
        let wanted = Wanted {
            name: self.plan.cli.name(),
            index: self.link.index,
            addresses: &configured.addresses,
            routes: &routes,
            table: configured.table,
            fwmark: self.fwmark,
        };
        self.setup.addresses(&mut self.netlink, wanted)?;
        fault::at("addresses")?;
        self.netlink.set_link_up(self.link.index, self.link.mtu)?;
        // Handshakes need not wait for name servers and routes.
        self.refresh_link();
        fault::at("up")?;
        self.set_dns()?;
        fault::at("dns")?;
        self.check_end()?;
        let begun = self.setup.begin_routes(&mut self.netlink, wanted);
        self.note_leftovers(false);
        let mut work = begun?;
        fault::at("rules")?;
        while !self.setup.go_on(&mut self.netlink, &mut work)? {
            self.turn(None, Duration::ZERO);
            self.check_end()?;
        }
        fault::at("routes")
    }

    fn set_dns(&mut self) -> Result<(), SupervisorError> {
        let configured = &self.plan.config.interface;
        let dns = Dns {
            servers: configured.dns.clone(),
            search: configured.dns_search.clone(),
        };
        if dns.is_empty() {
            return Ok(());
        }
        let job = dns::start_set(self.plan.cli.name(), &dns)?;
        // Noted first: what fails half way is taken back too.
        self.dns = dns;
        self.note_leftovers(false);
        Ok(self.finish(job)?)
    }

    fn run_hooks(&mut self, key: &str, commands: &[String]) -> Result<(), SupervisorError> {
        for hook in commands {
            let job = hooks::start(key, hook, self.plan.cli.name())?;
            self.finish(job)?;
            self.check_end()?;
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), SupervisorError> {
        match &self.end {
            None => Ok(()),
            Some(End::Asked) => Err(SupervisorError::Interrupted),
            Some(End::Deleted) => Err(SupervisorError::Deleted),
            Some(End::Failed(why)) => Err(SupervisorError::Failed(why.clone())),
        }
    }
}
