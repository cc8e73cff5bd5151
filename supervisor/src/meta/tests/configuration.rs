//! Transactions of the UAPI, configurations, reloads, names, commands.

use super::rig::{Rig, Stock};
use crate::channel::{FromMeta, Granted, Privileged, Refused};
use crate::helper::RUNNERS;
use crate::helper::protocol::{Outcome, Work};
use crate::meta::jobs::JobPurpose;
use crate::meta::requests::Purpose;
use crate::meta::transaction::{Progress, Transaction};
use ringway_proto::config::Config;
use ringway_proto::prefix::Prefix;
use ringway_proto::uapi::{AllowedIpChange, PeerChange, SetItem, errno};
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::RefusalReason;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

fn set(rig: &mut Rig, items: Vec<SetItem>) -> i32 {
    let mut transaction = Transaction::new(items);
    loop {
        match transaction.step(&mut rig.core, 1000) {
            Progress::More => {}
            Progress::Done(errno) => return errno,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn change(peer: &Stock, allowed: &[&str]) -> PeerChange {
    let give = |text: &&str| AllowedIpChange {
        prefix: text.parse().unwrap(),
        remove: false,
    };
    PeerChange {
        allowed_ips: allowed.iter().map(give).collect(),
        ..PeerChange::new(peer.private.public())
    }
}

pub(super) fn who(rig: &Rig, address: &str) -> Option<PeerSlot> {
    rig.state.routes().lookup(address.parse().unwrap())
}

#[test]
fn a_transaction_is_shown_at_its_end() {
    let mut rig = Rig::new(8, 64);
    let (one, two) = (Stock::new(&rig), Stock::new(&rig));
    let items = vec![
        SetItem::Peer(change(&one, &["10.0.0.0/8", "fd00::/8"])),
        SetItem::Peer(change(&two, &["10.1.0.0/16"])),
    ];
    assert_eq!(set(&mut rig, items), errno::OK);
    let (first, second) = (PeerSlot(0), PeerSlot(1));
    assert_eq!(who(&rig, "10.2.0.1"), Some(first));
    assert_eq!(who(&rig, "10.1.0.1"), Some(second));
    assert_eq!(who(&rig, "fd00::1"), Some(first));
    assert_eq!(
        set(&mut rig, vec![SetItem::Peer(change(&two, &["10.0.0.0/8"]))]),
        errno::OK
    );
    assert_eq!(who(&rig, "10.2.0.1"), Some(second), "it moved");
    let removal = PeerChange {
        remove: true,
        ..PeerChange::new(two.private.public())
    };
    assert_eq!(set(&mut rig, vec![SetItem::Peer(removal)]), errno::OK);
    assert_eq!(who(&rig, "10.1.0.1"), None);
    assert!(rig.state.peer(second).is_none());
    let nobody = PeerChange {
        update_only: true,
        ..PeerChange::new(two.private.public())
    };
    assert_eq!(set(&mut rig, vec![SetItem::Peer(nobody)]), errno::OK);
    assert!(rig.core.peers.find(&two.private.public()).is_none());
}

#[test]
fn a_huge_transaction_goes_in_pieces() {
    let mut rig = Rig::new(4096, 262_144);
    let peer = Stock::new(&rig);
    let mut huge = PeerChange::new(peer.private.public());
    huge.allowed_ips = (0..130_000_u32)
        .map(|number| AllowedIpChange {
            prefix: Prefix::host(IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + number))),
            remove: false,
        })
        .collect();
    let mut transaction = Transaction::new(vec![SetItem::Peer(huge)]);
    let mut steps = 0;
    while transaction.step(&mut rig.core, 8192) == Progress::More {
        steps += 1;
    }
    assert!(steps > 10);
    assert_eq!(who(&rig, "10.1.251.207"), Some(PeerSlot(0)));
    assert_eq!(rig.state.routes().len(), 130_000);
}

#[test]
fn beyond_a_limit_there_is_no_space() {
    let mut rig = Rig::new(2, 3);
    let peers: Vec<Stock> = (0..3).map(|_| Stock::new(&rig)).collect();
    let items = peers
        .iter()
        .map(|peer| SetItem::Peer(change(peer, &[])))
        .collect();
    assert_eq!(set(&mut rig, items), errno::ENOSPC);
    let many = change(&peers[0], &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    assert_eq!(set(&mut rig, vec![SetItem::Peer(many)]), errno::ENOSPC);
    assert_eq!(
        who(&rig, "10.0.0.1"),
        Some(PeerSlot(0)),
        "what fitted stays, as in the kernel"
    );
    assert_eq!(who(&rig, "10.0.0.4"), None);
}

#[test]
fn a_taken_port_is_what_the_client_is_told() {
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let items = vec![
        SetItem::ListenPort(4500),
        SetItem::Peer(change(&peer, &["10.0.0.1"])),
    ];
    let mut transaction = Transaction::new(items);
    assert_eq!(transaction.step(&mut rig.core, 10), Progress::Waits);
    let (id, what) = rig.requests().remove(0);
    assert!(matches!(what, Privileged::Listen { port: 4500, .. }));
    assert!(!transaction.answered(&mut rig.core, id + 1, Ok(Granted::Done)));
    let refused = Refused {
        errno: errno::EADDRINUSE,
        message: "port 4500 is taken".into(),
    };
    assert!(transaction.answered(&mut rig.core, id, Err(refused)));
    assert_eq!(
        transaction.step(&mut rig.core, 10),
        Progress::Done(errno::EADDRINUSE)
    );
    assert_eq!(who(&rig, "10.0.0.1"), None, "what followed was not done");
    let mut transaction =
        Transaction::new(vec![SetItem::ListenPort(4501), SetItem::ListenPort(4501)]);
    assert_eq!(transaction.step(&mut rig.core, 10), Progress::Waits);
    let (id, _) = rig.requests().remove(0);
    transaction.answered(&mut rig.core, id, Ok(Granted::Listening { port: 4501 }));
    assert_eq!(
        transaction.step(&mut rig.core, 10),
        Progress::Done(errno::OK)
    );
    assert_eq!(rig.state.gateway().unwrap().listen_port, 4501);
}

#[test]
fn nothing_is_told_before_it_is_granted() {
    let mut rig = Rig::new(8, 64);
    rig.core.automatic_port = false;
    for item in [SetItem::Fwmark(7), SetItem::ListenPort(0)] {
        let mut transaction = Transaction::new(vec![item.clone()]);
        assert_eq!(transaction.step(&mut rig.core, 10), Progress::Waits);
        assert_eq!(rig.state.gateway().unwrap().fwmark, 0);
        let (id, _) = rig.requests().remove(0);
        let refused = Refused {
            errno: errno::EINVAL,
            message: "no".into(),
        };
        transaction.answered(&mut rig.core, id, Err(refused));
        assert_eq!(
            transaction.step(&mut rig.core, 10),
            Progress::Done(errno::EINVAL)
        );
        assert_eq!(rig.state.gateway().unwrap().fwmark, 0);
        let mut again = Transaction::new(vec![item]);
        assert_eq!(again.step(&mut rig.core, 10), Progress::Waits, "asked anew");
        let (id, what) = rig.requests().remove(0);
        let granted = match what {
            Privileged::Fwmark(_) => Granted::Done,
            _ => Granted::Listening { port: 4711 },
        };
        again.answered(&mut rig.core, id, Ok(granted));
        assert_eq!(again.step(&mut rig.core, 10), Progress::Done(errno::OK));
        rig.core.set_fwmark(Purpose::Transaction, 0);
        rig.requests();
        rig.core.marked(0);
    }
    assert_eq!(rig.state.gateway().unwrap().listen_port, 4711);
    let mut same = Transaction::new(vec![SetItem::ListenPort(0)]);
    assert_eq!(same.step(&mut rig.core, 10), Progress::Done(errno::OK));
}

#[test]
fn another_private_key_ends_the_sessions_and_removes_ourselves() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    rig.confirm(slot);
    let lane = rig.path(slot).lane.unwrap();
    rig.sent();
    let other = Stock::new(&rig);
    let own = rig.add(&other);
    assert_eq!(
        set(
            &mut rig,
            vec![SetItem::PrivateKey(Some(other.private.clone()))]
        ),
        errno::OK
    );
    assert!(rig.keys.read(lane).is_none());
    assert!(rig.state.peer(own).is_none(), "a peer with our own key");
    assert_eq!(
        rig.state.gateway().unwrap().public_key,
        *other.private.public().as_bytes()
    );
    assert_eq!(
        set(&mut rig, vec![SetItem::Peer(change(&other, &[]))]),
        errno::OK
    );
    assert!(
        rig.core.peers.find(&other.private.public()).is_none(),
        "ignored"
    );
    assert_eq!(set(&mut rig, vec![SetItem::PrivateKey(None)]), errno::OK);
    assert_eq!(rig.state.gateway().unwrap().public_key, [0; 32]);
}

pub(super) fn config(rig: &Rig, peers: &[(&Stock, &str, Option<&str>)]) -> Config {
    let mut config = Config::default();
    config.interface.private_key = Some(rig.private.clone());
    config.interface.listen_port = Some(51820);
    for (peer, allowed, endpoint) in peers {
        let mut wanted = peer.config();
        wanted.allowed_ips = vec![allowed.parse().unwrap()];
        wanted.endpoint = endpoint.map(|text| text.parse().unwrap());
        config.peers.push(wanted);
    }
    config
}

pub(super) fn reload(
    rig: &mut Rig,
    keep_runtime: bool,
    result: Result<Config, String>,
) -> Result<String, String> {
    let mut reload = rig.core.begin_reload(9, keep_runtime).unwrap();
    rig.core.outbox().jobs.clear();
    let result = result.map(|config| Outcome::Config(Box::new(config)));
    let mut ended = reload.read(&mut rig.core, result);
    while !ended {
        for (id, what) in rig.requests() {
            let granted = match what {
                Privileged::Listen { port, .. } => Granted::Listening { port },
                Privileged::Interface(_) => Granted::Interface { fwmark: None },
                _ => Granted::Done,
            };
            ended |= reload.answered(&mut rig.core, id, Ok(granted));
        }
        rig.core.grace();
        ended = ended || reload.go_on(&mut rig.core);
    }
    rig.core.publish_routes().unwrap();
    let done = std::mem::take(&mut rig.core.outbox().supervisor);
    done.into_iter()
        .find_map(|message| match message {
            FromMeta::Done { id: 9, result } => Some(result),
            _ => None,
        })
        .unwrap()
}

#[test]
fn a_reload_touches_only_what_differs() {
    let mut rig = Rig::down(8, 64);
    let (mut stays, goes, comes, runtime) = (
        Stock::new(&rig),
        Stock::new(&rig),
        Stock::new(&rig),
        Stock::new(&rig),
    );
    let endpoint = Some("192.0.2.1:1");
    let first = config(
        &rig,
        &[
            (&stays, "10.0.0.1/32", endpoint),
            (&goes, "10.0.0.2/32", None),
        ],
    );
    rig.start(&first);
    rig.core.link(1420, true);
    let slot = rig.core.peers.find(&stays.private.public()).unwrap();
    let (_, message) = stays.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    rig.confirm(slot);
    let lane = rig.path(slot).lane;
    assert!(lane.is_some());
    set(
        &mut rig,
        vec![SetItem::Peer(change(&runtime, &["10.0.0.9"]))],
    );
    assert!(
        reload(&mut rig, false, Err("gw.conf:3: bad key".into()))
            .unwrap_err()
            .contains("gw.conf:3")
    );
    assert_eq!(
        who(&rig, "10.0.0.2"),
        rig.core.peers.find(&goes.private.public())
    );
    let second = config(
        &rig,
        &[
            (&stays, "10.0.0.2/32", endpoint),
            (&comes, "10.0.0.1/32", None),
        ],
    );
    reload(&mut rig, true, Ok(second.clone())).unwrap();
    assert_eq!(rig.path(slot).lane, lane, "its session goes on");
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        "192.0.2.7:5000".parse().unwrap()
    );
    assert_eq!(who(&rig, "10.0.0.2"), Some(slot));
    assert_eq!(
        who(&rig, "10.0.0.1"),
        rig.core.peers.find(&comes.private.public())
    );
    assert!(rig.core.peers.find(&goes.private.public()).is_none());
    assert!(
        rig.core.peers.find(&runtime.private.public()).is_some(),
        "kept"
    );
    reload(&mut rig, false, Ok(second)).unwrap();
    assert!(
        rig.core.peers.find(&runtime.private.public()).is_none(),
        "the file wins"
    );
    let mut elsewhere = config(&rig, &[(&stays, "10.0.0.2/32", Some("192.0.2.99:1"))]);
    elsewhere.interface.listen_port = Some(4500);
    reload(&mut rig, false, Ok(elsewhere)).unwrap();
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        "192.0.2.99:1".parse().unwrap()
    );
    assert_eq!(rig.state.gateway().unwrap().listen_port, 4500);
}

#[test]
fn a_reload_names_what_it_leaves_for_the_next_start() {
    let mut rig = Rig::down(8, 64);
    let wanted = config(&rig, &[]);
    rig.start(&wanted.clone());
    assert_eq!(reload(&mut rig, false, Ok(wanted.clone())).unwrap(), "");
    let mut other = wanted;
    other.interface.post_up = vec!["true".into()];
    other.interface.shards = Some(8);
    let remark = reload(&mut rig, false, Ok(other)).unwrap();
    assert!(remark.ends_with(": PostUp, Shards"), "{remark}");
}

fn job(rig: &mut Rig) -> (u64, Work) {
    let job = rig.core.outbox().jobs.pop().unwrap();
    (job.id, job.work)
}

#[test]
fn a_name_is_looked_up_until_it_is_found_and_again_when_nobody_answers() {
    let mut rig = Rig::down(8, 64);
    let peer = Stock::new(&rig);
    let mut wanted = config(&rig, &[(&peer, "10.0.0.1/32", Some("vpn.example:51820"))]);
    wanted.peers[0].persistent_keepalive = Some(25);
    rig.start(&wanted);
    rig.core.link(1420, true);
    let slot = rig.core.peers.find(&peer.private.public()).unwrap();
    let incarnation = rig.path(slot).incarnation;
    let (id, work) = job(&mut rig);
    assert_eq!(
        work,
        Work::Resolve {
            host: "vpn.example".into(),
            port: 51820
        }
    );
    rig.core.jobs.take(id);
    rig.core
        .resolved(slot, incarnation, id, Err("no resolver".into()));
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::UnresolvedEndpoint
    );
    rig.pass(Duration::from_secs(6));
    let (id, _) = job(&mut rig);
    let found = |last: u8| {
        Ok(Outcome::Addresses(vec![
            format!("192.0.2.{last}:51820").parse().unwrap(),
        ]))
    };
    rig.core.resolved(slot, incarnation, id, found(1));
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        "192.0.2.1:51820".parse().unwrap()
    );
    assert!(
        !rig.sent().is_empty(),
        "what waited for the address is sent"
    );
    rig.pass(Duration::from_secs(15));
    let (id, _) = job(&mut rig);
    rig.core.resolved(slot, incarnation, id, found(2));
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        "192.0.2.2:51820".parse().unwrap(),
        "it moved"
    );
    rig.core.resolved(slot, incarnation, id, found(3));
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        "192.0.2.2:51820".parse().unwrap(),
        "asked once"
    );
}

#[test]
fn the_commands_of_a_peer_run_in_order() {
    let mut rig = Rig::down(8, 64);
    let mut peer = Stock::new(&rig);
    let mut wanted = config(&rig, &[(&peer, "10.0.0.1/32", None)]);
    wanted.peers[0].name = Some("laptop".into());
    wanted.peers[0].peer_up = Some("up".into());
    wanted.peers[0].peer_down = Some("down".into());
    rig.start(&wanted);
    rig.core.link(1420, true);
    let slot = rig.core.peers.find(&peer.private.public()).unwrap();
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    rig.confirm(slot);
    let (id, work) = job(&mut rig);
    let Work::Script {
        command,
        environment,
        ..
    } = work
    else {
        panic!("no script")
    };
    assert_eq!(command, "up");
    for (name, value) in [
        ("RINGWAY_INTERFACE", "wgtest"),
        ("RINGWAY_PEER", "laptop"),
        ("RINGWAY_PUBLIC_KEY", &peer.private.public().to_base64()),
        ("RINGWAY_ENDPOINT", "192.0.2.7:5000"),
        ("RINGWAY_ALLOWED_IPS", "10.0.0.1/32"),
    ] {
        assert!(environment.contains(&(name.into(), value.into())), "{name}");
    }
    rig.core.drop_sessions(slot);
    assert!(
        rig.core.outbox().jobs.is_empty(),
        "not while the other one runs"
    );
    rig.core.jobs.take(id);
    rig.core
        .script_done(peer.private.public(), Ok(Outcome::ScriptDone));
    let (_, work) = job(&mut rig);
    assert!(matches!(work, Work::Script { command, .. } if command == "down"));
}

#[test]
fn no_more_commands_are_given_than_run_at_once() {
    let mut rig = Rig::down(64, 64);
    let peers: Vec<Stock> = (0..40).map(|_| Stock::new(&rig)).collect();
    let mut wanted = config(&rig, &[]);
    for peer in &peers {
        let mut peer = peer.config();
        peer.peer_down = Some("down".into());
        wanted.peers.push(peer);
    }
    rig.start(&wanted);
    for slot in rig.core.peers.slots() {
        rig.core.peers.get_mut(slot).unwrap().up = true;
    }
    rig.core.shut_down();
    let mut ran = 0;
    while rig.core.scripts_under_way() {
        let jobs = std::mem::take(&mut rig.core.outbox().jobs);
        assert!((1..=RUNNERS).contains(&jobs.len()), "{}", jobs.len());
        for job in jobs {
            let Some(JobPurpose::Script { public_key }) = rig.core.jobs.take(job.id) else {
                panic!("no command")
            };
            rig.core.script_done(public_key, Ok(Outcome::ScriptDone));
            ran += 1;
        }
    }
    assert_eq!(ran, peers.len(), "every one of them");
}

#[test]
fn what_runs_is_what_is_saved() {
    let mut rig = Rig::down(8, 64);
    let mut peer = Stock::new(&rig);
    let wanted = config(&rig, &[(&peer, "10.0.0.1/32", Some("192.0.2.1:1"))]);
    rig.start(&wanted);
    rig.core.link(1420, true);
    let runtime = Stock::new(&rig);
    set(
        &mut rig,
        vec![SetItem::Peer(change(&runtime, &["10.0.0.9"]))],
    );
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    let running = rig.core.running_config();
    assert_eq!(running.peers.len(), 2);
    assert_eq!(
        running.peers[0].endpoint,
        Some("192.0.2.7:5000".parse().unwrap())
    );
    rig.core.outbox().jobs.clear();
    rig.core.save(4);
    let (_, work) = job(&mut rig);
    let Work::WriteConfig { contents, path } = work else {
        panic!("no file")
    };
    assert_eq!(path.to_str(), Some("/etc/ringway/wgtest.conf"));
    assert!(contents.contains(&runtime.private.public().to_base64()));
}
