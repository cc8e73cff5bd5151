use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;

use super::{Limits, Table, write_conf, write_toml};
use crate::config::{Config, Interface, Peer, PollMode, WorkersSetting, parse_conf, parse_toml};
use crate::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::prefix::Prefix;

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0u8..=128).prop_map(|(address, length)| {
        Prefix::new(
            address,
            length.min(if address.is_ipv4() { 32 } else { 128 }),
        )
        .unwrap()
    })
}

/// Trimmed text without what `.conf` cannot hold.
fn command() -> impl Strategy<Value = String> {
    "[!-\"$-~äß€]([ -\"$-~äß€\t]{0,40}[!-\"$-~äß€])?"
}

fn many<S: Strategy>(strategy: S) -> impl Strategy<Value = Vec<S::Value>> {
    proptest::collection::vec(strategy, 0..4)
}

fn interface() -> impl Strategy<Value = Interface> {
    let network = (
        proptest::option::of(any::<[u8; 32]>()),
        proptest::option::of(any::<u16>()),
        proptest::option::of(1u32..),
        many(prefix()),
        many(address()),
        many("~?[a-z][a-z0-9.-]{0,20}"),
        proptest::option::of(68u16..),
        prop_oneof![
            Just(Table::Auto),
            Just(Table::Off),
            (1u32..).prop_map(Table::Number)
        ],
    );
    let hooks = (
        many(command()),
        many(command()),
        many(command()),
        many(command()),
        any::<bool>(),
    );
    let own = (
        many(address()),
        proptest::option::of("[a-z][a-z0-9.@-]{0,14}"),
        proptest::option::of(prop_oneof![
            Just(WorkersSetting::Auto),
            (1u16..=64).prop_map(WorkersSetting::Count)
        ]),
        proptest::option::of(Just(64u8)),
        proptest::option::of(many(0u16..64).prop_filter_map("no CPU", |cpus| {
            let list: Vec<_> = cpus.iter().map(u16::to_string).collect();
            list.join(",").parse().ok()
        })),
        proptest::option::of(proptest::sample::select(PollMode::ALL.to_vec())),
        (100u32..1 << 20, 100u32..1 << 24),
    );
    (network, hooks, own).prop_map(|(network, hooks, own)| Interface {
        private_key: network.0.map(|bytes| PrivateKey::from_bytes(&bytes)),
        listen_port: network.1,
        fwmark: network.2,
        addresses: network.3,
        dns: network.4,
        dns_search: network.5,
        mtu: network.6,
        table: network.7,
        pre_up: hooks.0,
        post_up: hooks.1,
        pre_down: hooks.2,
        post_down: hooks.3,
        save_config: hooks.4,
        listen_addresses: own.0,
        bind_device: own.1,
        workers: own.2,
        shards: own.3,
        cpus: own.4,
        poll: own.5,
        limits: Limits {
            peers: own.6.0,
            routes: own.6.1,
        },
    })
}

fn peer() -> impl Strategy<Value = Peer> {
    (
        proptest::option::of("[a-zA-Zäß][a-zA-Z0-9#= äß]{0,20}[a-zäß#]"),
        proptest::option::of(1u8..),
        proptest::option::of(prop_oneof![
            (address(), 1u16..)
                .prop_map(|(address, port)| std::net::SocketAddr::new(address, port).to_string()),
            "[a-z]{1,20}\\.example:[1-9][0-9]{0,3}",
            "\\[fe80::[1-9a-f]%eth[0-9]\\]:[1-9][0-9]{0,3}",
        ]),
        many(prefix()),
        proptest::option::of(1u16..),
        proptest::option::of(command()),
        proptest::option::of(command()),
    )
        .prop_map(
            |(name, psk, endpoint, allowed_ips, keepalive, up, down)| Peer {
                public_key: PublicKey::from_bytes([0; 32]),
                name,
                preshared_key: psk.map(|byte| PresharedKey::from_bytes([byte; 32])),
                endpoint: endpoint.map(|text| text.parse().unwrap()),
                allowed_ips,
                persistent_keepalive: keepalive,
                peer_up: up,
                peer_down: down,
            },
        )
}

/// Any configuration that a file can hold: keys differ and no allowed IP has two owners.
fn config() -> impl Strategy<Value = Config> {
    (interface(), many(peer())).prop_map(|(interface, mut peers)| {
        let mut seen = std::collections::HashSet::new();
        for (index, peer) in peers.iter_mut().enumerate() {
            peer.public_key = PublicKey::from_bytes([index as u8 + 1; 32]);
            let claims = std::mem::take(&mut peer.allowed_ips);
            peer.allowed_ips = claims
                .iter()
                .map(Prefix::masked)
                .filter(|prefix| seen.insert(*prefix))
                .collect();
        }
        Config { interface, peers }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn conf_reads_back_as_it_was(config in config()) {
        let text = write_conf(&config).unwrap();
        let read = parse_conf(&text, Path::new("wg0.conf")).map_err(|error| TestCaseError::fail(format!("{error}\n{}", *text)))?;
        prop_assert_eq!(&read.config, &config, "{}", *text);
        prop_assert_eq!(write_conf(&read.config).unwrap(), text);
    }

    #[test]
    fn toml_reads_back_as_it_was(config in config(), odd in "[!-~]\\PC{0,20}[\n\t\"\\\\#]{0,5}[!-~]") {
        let mut config = config;
        config.interface.post_up.push(odd);
        let text = write_toml(&config);
        let read = parse_toml(&text, Path::new("wg0.toml")).map_err(|error| TestCaseError::fail(format!("{error}\n{}", *text)))?;
        prop_assert_eq!(&read.config, &config, "{}", *text);
    }

    #[test]
    fn the_binary_form_reads_back_too(config in config()) {
        let bytes = crate::codec::encode(&config).unwrap();
        prop_assert_eq!(crate::codec::decode::<Config>(&bytes, 1 << 20).unwrap(), config);
    }
}

#[test]
fn what_conf_cannot_hold_is_refused() {
    for command in ["echo # x", "a\nb", " a", ""] {
        let mut config = Config::default();
        config.interface.post_up.push(command.to_owned());
        let error = write_conf(&config).unwrap_err().to_string();
        assert!(
            error.starts_with("PostUp cannot be written to a .conf file: "),
            "{error}"
        );
        assert!(!error.contains('\n'));
    }
}

#[test]
fn a_saved_file_is_what_wg_quick_would_save() {
    let mut config = Config::default();
    config.interface.private_key = Some(PrivateKey::from_bytes(&[8; 32]));
    config
        .interface
        .addresses
        .push("10.9.0.1/24".parse().unwrap());
    config.interface.listen_port = Some(51820);
    config.interface.save_config = true;
    let mut peer = Peer::new(PublicKey::from_bytes([1; 32]));
    peer.name = Some("Anna's phone #2".to_owned());
    peer.allowed_ips = vec![
        "10.9.0.2/32".parse().unwrap(),
        "fd00::2/128".parse().unwrap(),
    ];
    config.peers.push(peer);
    assert_eq!(
        *write_conf(&config).unwrap(),
        "[Interface]\nAddress = 10.9.0.1/24\nSaveConfig = true\nListenPort = 51820\n\
         PrivateKey = CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICEg=\n\n\
         [Peer]\n# Name = Anna's phone #2\nPublicKey = AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n\
         AllowedIPs = 10.9.0.2/32, fd00::2/128\n"
    );
}
