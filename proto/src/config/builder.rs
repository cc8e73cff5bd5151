//! Builds a configuration from keys and values, whichever format they stood in, and checks it as a whole.

use std::collections::HashMap;
use std::path::Path;

use super::error::Fault;
use super::field::{Field, Format, Key, Section};
use super::value;
use super::{Config, ConfigError, Loaded, Peer, Warning, WorkersSetting};
use crate::keys::PublicKey;
use crate::prefix::Prefix;

/// A configuration in the making.
pub(super) struct Builder<'a> {
    file: &'a Path,
    format: Format,
    config: Config,
    lines: Vec<PeerLines>,
    comment_names: Vec<(usize, String, usize)>,
    workers_line: usize,
    warnings: Vec<Warning>,
}

/// Where the parts of a peer stand, for the checks across peers.
#[derive(Default)]
struct PeerLines {
    header: usize,
    public_key: Option<usize>,
    allowed_ips: Vec<usize>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(file: &'a Path, format: Format) -> Builder<'a> {
        Builder {
            file,
            format,
            config: Config::default(),
            lines: Vec::new(),
            comment_names: Vec::new(),
            workers_line: 0,
            warnings: Vec::new(),
        }
    }

    /// Begins the next peer; the keys of [`Section::Peer`] that follow are its own.
    pub(super) fn begin_peer(&mut self, line: usize) {
        self.config
            .peers
            .push(Peer::new(PublicKey::from_bytes([0; 32])));
        self.lines.push(PeerLines {
            header: line,
            ..PeerLines::default()
        });
    }

    /// Takes a name from a comment in the peer that is being read. A comment of a stock file never makes the
    /// file bad, so it is judged at the end, after a key of the same meaning.
    pub(super) fn comment_name(&mut self, name: &str, line: usize) {
        if let Some(peer) = self.config.peers.len().checked_sub(1) {
            self.comment_names.push((peer, name.to_owned(), line));
        }
    }

    pub(super) fn warn(&mut self, fault: Fault, line: usize) {
        self.warnings.push(fault.warn(self.file, Some(line)));
    }

    /// Sets one value; of a key that takes many, adds it.
    pub(super) fn set(
        &mut self,
        field: &Field,
        text: &str,
        line: usize,
    ) -> Result<(), ConfigError> {
        let name = field.name(self.format);
        let stored = match field.section {
            Section::Interface => self.set_interface(field.key, name, text, line),
            Section::Limits => self.set_limit(field.key, name, text),
            Section::Peer => self.set_peer(field.key, name, text, line),
        };
        stored.map_err(|fault| fault.at(self.file, line))
    }

    fn set_interface(
        &mut self,
        key: Key,
        name: &str,
        text: &str,
        line: usize,
    ) -> Result<(), Fault> {
        let interface = &mut self.config.interface;
        match key {
            Key::PrivateKey => interface.private_key = value::private_key(name, text)?,
            Key::ListenPort => interface.listen_port = Some(value::port(name, text)?),
            Key::FwMark => interface.fwmark = value::fwmark(name, text)?,
            Key::Address => interface.addresses.push(value::prefix(name, text)?),
            Key::Dns | Key::DnsSearch => match text.parse() {
                Ok(address) => interface.dns.push(address),
                Err(_) => interface.dns_search.push(value::search_domain(name, text)?),
            },
            Key::Mtu => interface.mtu = Some(value::mtu(name, text)?),
            Key::Table => interface.table = value::table(name, text)?,
            Key::PreUp => interface.pre_up.push(value::command(name, text)?),
            Key::PostUp => interface.post_up.push(value::command(name, text)?),
            Key::PreDown => interface.pre_down.push(value::command(name, text)?),
            Key::PostDown => interface.post_down.push(value::command(name, text)?),
            Key::SaveConfig => interface.save_config = value::boolean(name, text)?,
            Key::ListenAddress => interface.listen_addresses.push(value::address(name, text)?),
            Key::BindDevice => interface.bind_device = Some(value::device(name, text)?),
            Key::Workers => {
                self.workers_line = line;
                interface.workers = Some(value::parsed(name, text)?);
            }
            Key::Shards => interface.shards = Some(value::shards(name, text)?),
            Key::Cpus => interface.cpus = Some(value::parsed(name, text)?),
            Key::Poll => interface.poll = Some(value::parsed(name, text)?),
            _ => return Err(Fault::new("misplaced key", "report this").value(name)),
        }
        Ok(())
    }

    fn set_limit(&mut self, key: Key, name: &str, text: &str) -> Result<(), Fault> {
        let limits = &mut self.config.interface.limits;
        match key {
            Key::Peers => limits.peers = value::limit(name, text, 1 << 20)?,
            Key::Routes => limits.routes = value::limit(name, text, 1 << 24)?,
            _ => return Err(Fault::new("misplaced key", "report this").value(name)),
        }
        Ok(())
    }

    fn set_peer(&mut self, key: Key, name: &str, text: &str, line: usize) -> Result<(), Fault> {
        let (Some(peer), Some(lines)) = (self.config.peers.last_mut(), self.lines.last_mut())
        else {
            return Err(
                Fault::new("key without a peer", "begin the peer with its header").value(name),
            );
        };
        match key {
            Key::Name => peer.name = Some(value::peer_name(name, text)?),
            Key::PublicKey => {
                peer.public_key = value::public_key(name, text)?;
                lines.public_key = Some(line);
            }
            Key::PresharedKey => peer.preshared_key = value::preshared_key(name, text)?,
            Key::AllowedIps => {
                let prefix = value::allowed_ip(name, text)?;
                peer.allowed_ips.push(prefix);
                lines.allowed_ips.push(line);
            }
            Key::Endpoint => peer.endpoint = Some(value::endpoint(name, text)?),
            Key::PersistentKeepalive => peer.persistent_keepalive = value::keepalive(name, text)?,
            Key::PeerUp => peer.peer_up = Some(value::command(name, text)?),
            Key::PeerDown => peer.peer_down = Some(value::command(name, text)?),
            _ => return Err(Fault::new("misplaced key", "report this").value(name)),
        }
        Ok(())
    }

    /// The whole configuration, if its parts agree.
    pub(super) fn finish(mut self) -> Result<Loaded, ConfigError> {
        self.take_comment_names();
        self.check_public_keys()?;
        self.check_allowed_ips()?;
        self.check_limits()?;
        self.warn_of_doubts();
        Ok(Loaded {
            config: self.config,
            warnings: self.warnings,
        })
    }

    fn take_comment_names(&mut self) {
        for (peer, name, line) in std::mem::take(&mut self.comment_names) {
            match value::peer_name("# Name", &name) {
                Ok(name) => {
                    let slot = &mut self.config.peers[peer].name;
                    if slot.is_none() {
                        *slot = Some(name);
                    }
                }
                Err(fault) => self.warn(fault, line),
            }
        }
    }

    fn check_public_keys(&self) -> Result<(), ConfigError> {
        let name = self
            .format
            .field(Section::Peer, "PublicKey")
            .map_or("public_key", |field| field.name(self.format));
        let mut seen: HashMap<PublicKey, usize> = HashMap::new();
        for (index, (peer, lines)) in self.config.peers.iter().zip(&self.lines).enumerate() {
            let Some(line) = lines.public_key else {
                let what = format!("peer without {name}");
                let remedy = "give the key that `wg pubkey` prints for the peer's private key";
                return Err(Fault::new(what, remedy).at(self.file, lines.header));
            };
            if let Some(first) = seen.insert(peer.public_key, index) {
                let what = format!(
                    "peer is there twice: {} and {}",
                    self.whose(first),
                    self.whose(index)
                );
                return Err(
                    Fault::new(what, "merge the two sections, or give one its own key")
                        .value(&peer.public_key.to_string())
                        .at(self.file, line),
                );
            }
        }
        Ok(())
    }

    /// Also drops what one peer claims twice.
    fn check_allowed_ips(&mut self) -> Result<(), ConfigError> {
        let mut owners: HashMap<Prefix, usize> = HashMap::new();
        for index in 0..self.config.peers.len() {
            let claims = std::mem::take(&mut self.config.peers[index].allowed_ips);
            let mut kept = Vec::with_capacity(claims.len());
            for (position, prefix) in claims.into_iter().enumerate() {
                match owners.insert(prefix, index) {
                    None => kept.push(prefix),
                    Some(first) if first == index => {}
                    Some(first) => {
                        let what = format!(
                            "allowed IP of two peers: {} and {}",
                            self.whose(first),
                            self.whose(index)
                        );
                        let line = self.lines[index].allowed_ips[position];
                        return Err(Fault::new(
                            what,
                            "leave it to one of them; a longer prefix may lie inside another's",
                        )
                        .value(&prefix.to_string())
                        .at(self.file, line));
                    }
                }
            }
            self.config.peers[index].allowed_ips = kept;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let interface = &self.config.interface;
        let limits = self.format.header(Section::Limits);
        let too_many = |what: &str, count: usize, limit: u32, field: &str| {
            Fault::new(
                format!("too many {what} for the limit of {limit}"),
                format!("raise {field} below {limits}"),
            )
            .value(&count.to_string())
            .of(self.file)
        };
        let names = match self.format {
            Format::Conf => ["Peers", "Routes"],
            Format::Toml => ["peers", "routes"],
        };
        if self.config.peers.len() > interface.limits.peers as usize {
            return Err(too_many(
                "peers",
                self.config.peers.len(),
                interface.limits.peers,
                names[0],
            ));
        }
        let routes = self
            .config
            .peers
            .iter()
            .map(|peer| peer.allowed_ips.len())
            .sum::<usize>();
        if routes > interface.limits.routes as usize {
            return Err(too_many(
                "allowed IPs",
                routes,
                interface.limits.routes,
                names[1],
            ));
        }
        if let (Some(WorkersSetting::Count(workers)), Some(shards)) =
            (interface.workers, interface.shards)
        {
            if workers > u16::from(shards) {
                return Err(Fault::new(
                    format!("more workers than the {shards} shards"),
                    "a worker needs a shard: raise the shards or lower the workers",
                )
                .value(&workers.to_string())
                .at(self.file, self.workers_line));
            }
        }
        Ok(())
    }

    fn warn_of_doubts(&mut self) {
        let mut names: HashMap<&str, usize> = HashMap::new();
        let mut doubts = Vec::new();
        for (index, peer) in self.config.peers.iter().enumerate() {
            let Some(name) = peer.name.as_deref() else {
                continue;
            };
            if names.insert(name, index).is_some() {
                let fault = Fault::new(
                    "two peers have one name",
                    "give each its own, so that tools can tell them apart",
                );
                doubts.push((fault.value(name), self.lines[index].header));
            }
        }
        let interface = &self.config.interface;
        let small = interface.mtu.is_some_and(|mtu| mtu < 1280);
        if small && interface.addresses.iter().any(|prefix| !prefix.is_ipv4()) {
            let fault = Fault::new(
                "MTU too small for IPv6",
                "the kernel takes IPv6 off an interface below 1280: raise it",
            );
            doubts.push((fault, 1));
        }
        for (fault, line) in doubts {
            self.warn(fault, line);
        }
    }

    /// A peer as a message names it: by name and line, or by line.
    fn whose(&self, index: usize) -> String {
        let line = self.lines[index].header;
        match &self.config.peers[index].name {
            Some(name) => format!("{name} (line {line})"),
            None => format!("the peer of line {line}"),
        }
    }
}
