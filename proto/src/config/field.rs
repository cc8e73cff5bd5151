//! The table of keys: what a key is called in either format, where it stands and how often.

use Key as K;

/// Every key of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)] // They are named as the files name them.
pub(super) enum Key {
    PrivateKey,
    ListenPort,
    FwMark,
    Address,
    Dns,
    DnsSearch,
    Mtu,
    Table,
    PreUp,
    PostUp,
    PreDown,
    PostDown,
    SaveConfig,
    ListenAddress,
    BindDevice,
    Workers,
    Shards,
    Cpus,
    Poll,
    Name,
    PublicKey,
    PresharedKey,
    AllowedIps,
    Endpoint,
    PersistentKeepalive,
    PeerUp,
    PeerDown,
    Peers,
    Routes,
}

/// The sections of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Interface,
    Peer,
    Limits,
}

/// How the values of a key are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arity {
    /// One value; the last one counts, as in wg-quick.
    One,
    /// One value that has commas in it; a TOML list is joined by them.
    Joined,
    /// Any number of values, apart by commas or spaces, on any number of lines.
    Many,
    /// One value a line with whatever is in it, on any number of lines.
    Lines,
}

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Conf,
    Toml,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) key: Key,
    pub(super) section: Section,
    pub(super) arity: Arity,
    conf: &'static str,
    toml: &'static str,
    /// Whether wg-quick and `wg` refuse a file with this key.
    pub(super) own: bool,
}

/// All keys in the order in which they are written.
pub(super) const FIELDS: &[Field] = &[
    stock(
        K::Address,
        Section::Interface,
        Arity::Many,
        "Address",
        "addresses",
    ),
    stock(K::Dns, Section::Interface, Arity::Many, "DNS", "dns"),
    // In .conf a search domain is a DNS that is no address.
    own(
        K::DnsSearch,
        Section::Interface,
        Arity::Many,
        "",
        "dns_search",
    ),
    stock(K::Mtu, Section::Interface, Arity::One, "MTU", "mtu"),
    stock(K::Table, Section::Interface, Arity::One, "Table", "table"),
    stock(
        K::SaveConfig,
        Section::Interface,
        Arity::One,
        "SaveConfig",
        "save_config",
    ),
    stock(
        K::PreUp,
        Section::Interface,
        Arity::Lines,
        "PreUp",
        "pre_up",
    ),
    stock(
        K::PostUp,
        Section::Interface,
        Arity::Lines,
        "PostUp",
        "post_up",
    ),
    stock(
        K::PreDown,
        Section::Interface,
        Arity::Lines,
        "PreDown",
        "pre_down",
    ),
    stock(
        K::PostDown,
        Section::Interface,
        Arity::Lines,
        "PostDown",
        "post_down",
    ),
    stock(
        K::ListenPort,
        Section::Interface,
        Arity::One,
        "ListenPort",
        "listen_port",
    ),
    stock(
        K::FwMark,
        Section::Interface,
        Arity::One,
        "FwMark",
        "fwmark",
    ),
    stock(
        K::PrivateKey,
        Section::Interface,
        Arity::One,
        "PrivateKey",
        "private_key",
    ),
    own(
        K::ListenAddress,
        Section::Interface,
        Arity::Many,
        "ListenAddress",
        "listen_addresses",
    ),
    own(
        K::BindDevice,
        Section::Interface,
        Arity::One,
        "BindDevice",
        "bind_device",
    ),
    own(
        K::Workers,
        Section::Interface,
        Arity::One,
        "Workers",
        "workers",
    ),
    own(
        K::Shards,
        Section::Interface,
        Arity::One,
        "Shards",
        "shards",
    ),
    own(K::Cpus, Section::Interface, Arity::Joined, "Cpus", "cpus"),
    own(K::Poll, Section::Interface, Arity::One, "Poll", "poll"),
    own(K::Peers, Section::Limits, Arity::One, "Peers", "peers"),
    own(K::Routes, Section::Limits, Arity::One, "Routes", "routes"),
    own(K::Name, Section::Peer, Arity::One, "Name", "name"),
    stock(
        K::PublicKey,
        Section::Peer,
        Arity::One,
        "PublicKey",
        "public_key",
    ),
    stock(
        K::PresharedKey,
        Section::Peer,
        Arity::One,
        "PresharedKey",
        "preshared_key",
    ),
    stock(
        K::AllowedIps,
        Section::Peer,
        Arity::Many,
        "AllowedIPs",
        "allowed_ips",
    ),
    stock(
        K::Endpoint,
        Section::Peer,
        Arity::One,
        "Endpoint",
        "endpoint",
    ),
    stock(
        K::PersistentKeepalive,
        Section::Peer,
        Arity::One,
        "PersistentKeepalive",
        "persistent_keepalive",
    ),
    own(K::PeerUp, Section::Peer, Arity::One, "PeerUp", "peer_up"),
    own(
        K::PeerDown,
        Section::Peer,
        Arity::One,
        "PeerDown",
        "peer_down",
    ),
];

const fn stock(
    key: Key,
    section: Section,
    arity: Arity,
    conf: &'static str,
    toml: &'static str,
) -> Field {
    Field {
        key,
        section,
        arity,
        conf,
        toml,
        own: false,
    }
}

const fn own(
    key: Key,
    section: Section,
    arity: Arity,
    conf: &'static str,
    toml: &'static str,
) -> Field {
    Field {
        key,
        section,
        arity,
        conf,
        toml,
        own: true,
    }
}

impl Field {
    /// What the key is called; empty where the format has no such key.
    pub(super) fn name(&self, format: Format) -> &'static str {
        match format {
            Format::Conf => self.conf,
            Format::Toml => self.toml,
        }
    }
}

impl Format {
    /// The key of this name; `.conf` ignores case, as wg-quick does.
    pub(super) fn field(self, section: Section, name: &str) -> Option<&'static Field> {
        self.known(section).find(|field| match self {
            Format::Conf => field.conf.eq_ignore_ascii_case(name),
            Format::Toml => field.toml == name,
        })
    }

    /// The header of a section.
    pub(super) fn header(self, section: Section) -> &'static str {
        match (self, section) {
            (Format::Conf, Section::Interface) => "[Interface]",
            (Format::Conf, Section::Peer) => "[Peer]",
            (Format::Conf, Section::Limits) => "[Limits]",
            (Format::Toml, Section::Interface) => "[interface]",
            (Format::Toml, Section::Peer) => "[[peer]]",
            (Format::Toml, Section::Limits) => "[limits]",
        }
    }

    /// What to do about a key that is not known in this section.
    pub(super) fn remedy(self, section: Section, name: &str) -> String {
        for other in [Section::Interface, Section::Peer, Section::Limits] {
            if let Some(field) = self.field(other, name).filter(|_| other != section) {
                return format!("{} belongs below {}", field.name(self), self.header(other));
            }
        }
        match nearest(name, self.known(section).map(|field| field.name(self))) {
            Some(known) => format!("did you mean {known}?"),
            None => "remove it, or see ringway.toml(5) for the keys that are known".to_owned(),
        }
    }

    fn known(self, section: Section) -> impl Iterator<Item = &'static Field> {
        FIELDS
            .iter()
            .filter(move |field| field.section == section && !field.name(self).is_empty())
    }
}

/// The known word that a mistyped one is nearest to, unless it is far from all.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes()
            .filter(|byte| !b"_- []".contains(byte))
            .map(|byte| byte.to_ascii_lowercase())
            .collect()
    };
    let word = plain(word);
    if word.len() > 64 {
        return None;
    }
    known
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many bytes must be inserted, removed, replaced or swapped with their neighbour (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_keys_find_their_neighbour() {
        let remedy = |section, name| Format::Conf.remedy(section, name);
        assert_eq!(
            remedy(Section::Interface, "Adress"),
            "did you mean Address?"
        );
        assert_eq!(
            remedy(Section::Interface, "Private-Key"),
            "did you mean PrivateKey?"
        );
        assert_eq!(
            remedy(Section::Peer, "AllowedIP"),
            "did you mean AllowedIPs?"
        );
        assert_eq!(remedy(Section::Peer, "EndPiont"), "did you mean Endpoint?");
        assert_eq!(
            remedy(Section::Peer, "listenport"),
            "ListenPort belongs below [Interface]"
        );
        assert!(remedy(Section::Peer, "Colour").starts_with("remove it"));
        assert_eq!(
            Format::Toml.remedy(Section::Peer, "allowedips"),
            "did you mean allowed_ips?"
        );
    }

    #[test]
    fn no_two_keys_share_a_name() {
        for format in [Format::Conf, Format::Toml] {
            for field in FIELDS.iter().filter(|field| !field.name(format).is_empty()) {
                let same = |other: &&Field| {
                    other.section == field.section
                        && other.name(format).eq_ignore_ascii_case(field.name(format))
                };
                assert_eq!(
                    FIELDS.iter().filter(same).count(),
                    1,
                    "{}",
                    field.name(format)
                );
            }
        }
    }
}
