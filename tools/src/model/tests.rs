//! The models over real segments, as tables and as JSON.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use ringway_proto::config::PollMode;
use ringway_proto::control::{Info, SocketInfo};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{PeerSlot, WorkerSlot};
use ringway_shm::process::Role;
use serde_json::{Value, json};

use super::drops::Drops;
use super::peers::Peers;
use super::rings::Rings;
use super::routes::Routes;
use super::sample::Sample;
use super::shm::Shm;
use super::sockets::Sockets;
use super::status::Status;
use super::testing::{Fixture, NOW_BOOT, NOW_UNIX, SECOND};
use super::workers::Workers;
use super::{Document, Human};

fn value<T: serde::Serialize>(body: T) -> Value {
    serde_json::to_value(Document::new("wg0", NOW_UNIX, body)).unwrap()
}

fn later(fixture: &Fixture, seconds: u64) -> Sample {
    Sample {
        boot_ns: NOW_BOOT + seconds * SECOND,
        unix_ns: NOW_UNIX + seconds * SECOND,
        ..Sample::take(&fixture.gateway)
    }
}

#[test]
fn workers_have_the_fields_that_scripts_rely_on() {
    let fixture = Fixture::new("wg0");
    let now = fixture.sample();
    let document = value(Workers::new(&now, None, None));
    assert_eq!(document["name"], "wg0");
    assert_eq!(document["at"], "2025-01-01T00:00:00.000Z");
    let worker = &document["workers"][0];
    assert_eq!(worker["slot"], 0);
    assert_eq!(worker["pid"], std::process::id());
    assert_eq!(worker["cpu"], 3);
    assert_eq!(worker["shards"], json!([0, 2]));
    assert_eq!(worker["state"], "running");
    assert_eq!(worker["restarts"], 0);
    assert_eq!(worker["rx_packets"], 1_000);
    assert_eq!(worker["rx_bytes"], 1_452_000);
    assert_eq!(worker["tx_packets"], 500);
    assert_eq!(worker["tx_bytes"], 64_000);
    assert_eq!(worker["drops"], 3);
    assert_eq!(worker["uptime_seconds"], 100.0);
    assert!(worker.get("busy_fraction").is_some_and(Value::is_null));
    assert!(worker.get("rx_bits_per_second").is_none());
    assert_eq!(document["workers"][1]["state"], "failed");
    assert_eq!(document["workers"][1]["kernel_state"], "dead");
    assert_eq!(document["workers"][1]["restarts"], 5);
    for role in ["meta", "helper", "supervisor"] {
        assert_eq!(document[role]["pid"], std::process::id(), "{role}");
    }
}

#[test]
fn two_samples_make_shares_and_rates() {
    let fixture = Fixture::new("wg0");
    let before = fixture.sample();
    let slot = WorkerSlot(0);
    fixture
        .rings
        .process(Role::Worker(slot))
        .busy_ns
        .fetch_add(SECOND / 4, Relaxed);
    fixture
        .rings
        .counters(slot)
        .rx_packets
        .fetch_add(10_000, Relaxed);
    fixture
        .rings
        .counters(slot)
        .rx_bytes
        .fetch_add(125_000_000, Relaxed);
    fixture.rings.counters(slot).dropped(DropReason::Replay, 5);
    let now = later(&fixture, 1);
    let workers = Workers::new(&now, Some(&before), Some(&before));
    let document = value(&workers);
    assert_eq!(document["workers"][0]["busy_fraction"], 0.25);
    assert_eq!(document["workers"][0]["rx_bits_per_second"], 1e9);
    assert_eq!(document["total"]["rx_packets_per_second"], 10_000.0);
    assert_eq!(document["meta"]["busy_fraction"], 0.0);
    assert_eq!(document["supervisor"]["busy_fraction"], Value::Null);
    let text = workers.human("wg0");
    assert!(text.contains("25 %"), "{text}");
    assert!(text.contains("1.00 Gbit/s"), "{text}");
    assert!(text.contains("8 (+5/s)"), "{text}");
    assert!(text.contains("failed (dead)"), "{text}");
}

#[test]
fn peers_say_who_is_connected_and_why_not() {
    let fixture = Fixture::new("wg0");
    let peers = Peers::read(&fixture.gateway, &fixture.sample(), None);
    let document = value(&peers);
    let [laptop, phone, nameless] = [0, 1, 2].map(|at| &document["peers"][at]);
    assert_eq!(laptop["name"], "laptop");
    assert_eq!(
        laptop["public_key"],
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
    );
    assert_eq!(laptop["endpoint"], "203.0.113.5:51820");
    assert_eq!(laptop["allowed_ips"], json!(["10.0.0.1/32", "fd00::1/128"]));
    assert_eq!(laptop["last_handshake_seconds"], 12.0);
    assert_eq!(laptop["rx_bytes"], 1_000_148);
    assert_eq!(laptop["tx_bytes"], 2_092);
    assert_eq!(laptop["lanes"], 1);
    assert_eq!(laptop["cipher"], "chacha20poly1305");
    assert_eq!(laptop["last_refusal"], Value::Null);
    assert_eq!(laptop["connected"], true);
    assert_eq!(laptop["persistent_keepalive_seconds"], 25);
    assert_eq!(phone["last_handshake_seconds"], Value::Null);
    assert_eq!(phone["last_refusal"]["reason"], "preshared_key");
    assert_eq!(phone["last_refusal"]["age_seconds"], 4.0);
    assert_eq!(phone["last_refusal"]["from"], "203.0.113.6:1234");
    assert_eq!(phone["connected"], false);
    assert_eq!(nameless["name"], Value::Null);
    assert_eq!(nameless["endpoint"], Value::Null);
    assert_eq!(document["last_refusal"]["reason"], "unknown_key");

    let text = peers.human("wg0");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].starts_with("laptop ") && lines[1].contains("12 s ago"),
        "{text}"
    );
    assert!(
        lines[2].starts_with("phone ") && lines[2].contains("never"),
        "{text}"
    );
    assert!(
        lines[3].contains("! last refusal: preshared_key, 4 s ago, 203.0.113.6:1234"),
        "{text}"
    );
    assert!(lines[3].contains("PresharedKey on both sides"), "{text}");
    assert!(lines[4].starts_with("AwMD"), "{text}");
    assert!(
        lines[5].contains("nobody known: unknown_key, 30 s ago"),
        "{text}"
    );
}

#[test]
fn a_handshake_settles_an_older_refusal() {
    let mut fixture = Fixture::new("wg0");
    let mut record = fixture.gateway.state.peer(PeerSlot(1)).unwrap();
    record.last_handshake_unix_ns = NOW_UNIX - SECOND;
    fixture.state.set_peer(PeerSlot(1), &record);
    let text = Peers::read(&fixture.gateway, &fixture.sample(), None).human("wg0");
    assert!(text.contains("preshared_key, 4 s ago"), "{text}");
    assert!(text.contains("succeeded since"), "{text}");
    assert!(!text.contains("! last refusal: preshared"), "{text}");
}

#[test]
fn a_removed_peer_is_gone() {
    let mut fixture = Fixture::new("wg0");
    fixture.state.clear_peer(PeerSlot(0));
    let peers = Peers::read(&fixture.gateway, &fixture.sample(), None);
    assert_eq!(peers.peers.len(), 2);
    assert_eq!(peers.peers[0].name.as_deref(), Some("phone"));
}

#[test]
fn routes_name_their_peers() {
    let fixture = Fixture::new("wg0");
    let all = Routes::read(&fixture.gateway, None);
    assert_eq!((all.used, all.capacity, all.routes.len()), (4, 64, 4));
    let of = |address: &str| Routes::read(&fixture.gateway, Some(address.parse().unwrap()));
    let document = value(of("10.0.0.1"));
    assert_eq!(document["for"], "10.0.0.1");
    assert_eq!(document["routes"][0]["prefix"], "10.0.0.1/32");
    assert_eq!(document["routes"][0]["peer"], "laptop");
    assert_eq!(of("10.9.9.9").routes[0].prefix, "10.0.0.0/8");
    assert_eq!(of("fd00::1").routes[0].peer.as_deref(), Some("laptop"));
    let none = of("192.0.2.1");
    assert!(none.routes.is_empty());
    assert!(
        none.human("wg0")
            .contains("no peer's allowed IPs cover 192.0.2.1")
    );
}

#[test]
fn drops_come_with_place_and_remedy() {
    let fixture = Fixture::new("wg0");
    let before = fixture.sample();
    fixture
        .rings
        .counters(WorkerSlot(0))
        .dropped(DropReason::Replay, 20);
    let before = Sample {
        queue_drops: Some(0),
        ..before
    };
    let now = Sample {
        queue_drops: Some(4),
        ..later(&fixture, 2)
    };
    let drops = Drops::new(&now, Some(&before));
    let document = value(&drops);
    assert_eq!(document["total"], 36);
    let first = &document["drops"][0];
    assert_eq!(first["reason"], "replay");
    assert_eq!(first["stage"], "crypto");
    assert_eq!(first["process"], "worker0");
    assert_eq!(first["count"], 23);
    assert_eq!(first["per_second"], 10.0);
    assert_eq!(document["drops"][1]["process"], "meta");
    assert_eq!(document["drops"][2]["reason"], "tun_queue_full");
    assert_eq!(document["drops"][2]["process"], "kernel");
    assert_eq!(document["drops"][2]["per_second"], 2.0);
    assert_eq!(document["drops"].as_array().unwrap().len(), 4);
    let text = drops.human("wg0");
    assert!(text.contains(DropReason::BadMac1.hint()), "{text}");
}

#[test]
fn rings_have_the_fields_that_scripts_rely_on() {
    let fixture = Fixture::new("wg0");
    let rings = Rings::new(&fixture.sample(), None);
    let document = value(&rings);
    let all = document["rings"].as_array().unwrap();
    let ring = all.iter().find(|ring| ring["used"] == 3).unwrap();
    assert_eq!(ring["producer"], "worker0");
    assert_eq!(ring["consumer"], "meta");
    assert_eq!(ring["enqueued"], 3);
    assert_eq!(ring["dequeued"], 0);
    for field in ["name", "size", "high_water", "full_drops", "wakeups"] {
        assert!(ring.get(field).is_some(), "{field}");
    }
    assert!(rings.human("wg0").contains(ring["name"].as_str().unwrap()));
}

#[test]
fn status_works_with_and_without_the_supervisor() {
    let fixture = Fixture::new("wg0");
    let info = info();
    let status = Status::read(&fixture.gateway, Some(&info), &fixture.sample(), None);
    let document = value(&status);
    assert_eq!(document["listen_port"], 51820);
    assert_eq!(document["peers"], 3);
    assert_eq!(document["peers_connected"], 1);
    assert_eq!(document["workers_running"], 1);
    assert_eq!(document["drops"], 12);
    assert_eq!(document["rx_packets"], 1_000);
    assert_eq!(document["config_path"], "/etc/ringway/wg0.conf");
    let silent = Status::read(&fixture.gateway, None, &fixture.sample(), None);
    assert_eq!(value(&silent)["supervisor_answers"], false);
    let text = silent.human("wg0");
    assert!(text.contains("wg0, up, MTU 1420"), "{text}");
    assert!(text.contains("does not answer"), "{text}");
    assert!(text.contains("0xca6c"), "{text}");
    assert!(
        text.contains("unknown_key, 30 s ago, 198.51.100.9:4000"),
        "{text}"
    );
}

#[test]
fn shm_tells_fill_and_protection() {
    let fixture = Fixture::new("wg0");
    let shm = Shm::read(&fixture.gateway);
    assert_eq!((shm.peers_used, shm.routes_used, shm.shards), (3, 4, 4));
    let names: Vec<&str> = shm.segments.iter().map(|segment| segment.name).collect();
    assert_eq!(names, ["state", "rings"]);
    assert!(shm.segments.iter().all(|segment| segment.mode == "0400"));
    assert!(
        shm.segments
            .iter()
            .all(|segment| segment.allocated_bytes <= segment.size_bytes)
    );
    assert!(shm.human("wg0").contains("3 of 16"));
}

#[test]
fn sockets_are_what_the_supervisor_says() {
    let document = value(Sockets::new(&info()));
    assert_eq!(document["sockets"][0]["family"], "ipv6");
    assert_eq!(document["sockets"][0]["port"], 51820);
}

#[test]
fn segments_are_found_through_proc() {
    let name = format!("t{}", std::process::id());
    let fixture = Fixture::new(&name);
    let own = format!("/proc/{}", std::process::id());
    assert!(Path::new(&own).exists());
    let found = crate::attach::find_in_proc(Path::new("/proc"), &name);
    if nix::unistd::geteuid().is_root() {
        let (_, state, rings) = found.unwrap();
        let runtime = crate::runtime::tests::at(Path::new("/nonexistent"));
        let gateway = crate::attach::Gateway::over(&runtime, &name, state, rings).unwrap();
        assert_eq!(gateway.rings.workers(), 2);
    }
    assert!(crate::attach::find_in_proc(Path::new("/proc"), "no-such-gateway").is_none());
    drop(fixture);
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let fixture = Fixture::new("wg0");
    let runtime = crate::runtime::tests::at(Path::new("/nonexistent"));
    let [state, rings] = fixture
        .fds
        .each_ref()
        .map(|fd| fd.as_fd().try_clone_to_owned().unwrap());
    let error = crate::attach::Gateway::over(&runtime, "wg0", rings, state).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
}

fn info() -> Info {
    Info {
        name: "wg0".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 1,
        meta_pid: 2,
        helper_pid: 3,
        worker_pids: vec![4, 5],
        started_unix_ns: NOW_UNIX - 100 * SECOND,
        config_path: Some("/etc/ringway/wg0.conf".into()),
        poll: PollMode::Adaptive,
        shards: 4,
        sockets: vec![SocketInfo {
            address: "::".parse().unwrap(),
            port: 51820,
            device: None,
            fwmark: 0,
        }],
    }
}
