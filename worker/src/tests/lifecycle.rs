//! Start, change of sockets, end.

use super::harness::{Gateway, LEFT, RIGHT, Raw, ipv4, payload, settings, two};
use crate::control::{self, FromWorker, ToWorker};
use crate::worker::End;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use ringway_proto::config::PollMode;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, ShardId, WorkerSlot};
use ringway_shm::messages::{Command, Event};
use ringway_shm::sync::Ordering;
use std::os::fd::{AsFd, OwnedFd};

/// Waits until a descriptor is readable; a test that waits for longer has failed.
fn wait(fd: impl AsFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap(), 1);
}

#[test]
fn a_worker_starts_sleeps_wakes_and_stops() {
    let Raw {
        mut fds,
        mut gateway,
    } = Gateway::raw(1, 1);
    let fds = fds.remove(0);
    let thread = std::thread::spawn(move || crate::run(fds, settings(0, 1)));
    wait(&gateway.control[0]);
    assert_eq!(gateway.heard(0), Some(FromWorker::Ready));

    // Whether it sleeps yet or not, the command arrives and its answer rings meta's bell, once
    // meta says that it sleeps.
    gateway
        .rings
        .process(ringway_shm::rings::Role::Meta)
        .about_to_sleep();
    for _ in 0..50 {
        gateway.command(0, Command::CleanLane { lane: LaneSlot(3) });
        wait(&gateway.bells[1]);
        gateway.bells[1].clear();
        let told = Event::LaneCleaned { lane: LaneSlot(3) };
        assert_eq!(gateway.events(0), [told]);
    }
    control::send(gateway.control[0].as_fd(), &ToWorker::Stop, &[]).unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn the_supervisors_end_and_the_interfaces_end_are_ends() {
    let (mut left, _right) = two();
    let control: Vec<OwnedFd> = left.control.drain(..).collect();
    drop(control);
    assert_eq!(
        left.workers[0].run(PollMode::Epoll).unwrap(),
        End::SupervisorGone
    );

    let (mut left, _right) = two();
    left.tun.clear();
    assert_eq!(
        left.workers[0].run(PollMode::Epoll).unwrap(),
        End::InterfaceGone
    );

    let (mut left, _right) = two();
    control::send(left.control[0].as_fd(), &ToWorker::Stop, &[]).unwrap();
    assert_eq!(
        left.workers[0].run(PollMode::Adaptive).unwrap(),
        End::Stopped
    );
}

#[test]
fn other_sockets_take_over_without_losing_what_waits_in_the_former() {
    let (mut left, mut right) = two();
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(100));
    left.to_tun(0, &packet);
    left.turns();
    // It lies in the socket that the right side is about to leave.
    right.listen();
    assert_eq!(right.written(0), std::slice::from_ref(&packet));
    let mut path = left
        .state
        .reader()
        .peer_path(ringway_shm::ids::PeerSlot(2))
        .unwrap();
    if let Some(endpoint) = &mut path.endpoint {
        endpoint.remote = right.address(0);
    }
    left.state.set_path(ringway_shm::ids::PeerSlot(2), &path);
    left.to_tun(0, &packet);
    left.turns();
    right.turns();
    assert_eq!(right.written(0), [packet]);
}

#[test]
fn shards_belong_to_whom_the_supervisor_says() {
    let Raw { fds, mut gateway } = Gateway::raw(2, 2);
    for shard in 0..2 {
        let owner = gateway.rings.shard_owner(ShardId(shard));
        owner.store(u32::from(1 - shard), Ordering::Relaxed);
    }
    for (slot, fds) in fds.into_iter().enumerate() {
        let worker = crate::run::assemble(fds, settings(slot as u8, 2)).unwrap();
        gateway.workers.push(worker);
    }
    gateway.to_tun(1, &ipv4(LEFT, LEFT, 1, true, &payload(20)));
    gateway.turns();
    let counters = gateway.rings.counters(WorkerSlot(0));
    assert_eq!(counters.tun_rx_packets.load(Ordering::Relaxed), 1);
}

#[test]
fn losses_of_a_socket_that_is_kept_count_once() {
    let (mut left, mut right) = two();
    setsockopt(&right.sockets[0], sockopt::RxqOvfl, &1).unwrap();
    setsockopt(&right.sockets[0], sockopt::RcvBuf, &4_096).unwrap();
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(1_000));
    for _ in 0..40 {
        left.to_tun(0, &packet);
        // A row would be one buffer in the socket.
        left.turns();
    }
    right.turns();
    // The count goes with the next datagram that has room.
    left.to_tun(0, &packet);
    left.turns();
    right.turns();
    let lost = right.drops(DropReason::ReceiveFull);
    assert_eq!(right.written(0).len() as u64 + lost, 41);
    assert!(lost > 0);
    right.listen_again();
    left.to_tun(0, &packet);
    left.turns();
    right.turns();
    assert_eq!(right.written(0).len(), 1);
    assert_eq!(right.drops(DropReason::ReceiveFull), lost);
}

#[test]
fn settings_that_do_not_fit_are_told() {
    let Raw { mut fds, .. } = Gateway::raw(2, 1);
    let mut wrong = fds.remove(0);
    wrong.tun.pop();
    let error = crate::run(wrong, settings(0, 1)).unwrap_err().to_string();
    assert!(error.contains("1 TUN queues for 2 shards"), "{error}");
    let Raw { mut fds, .. } = Gateway::raw(2, 1);
    assert!(crate::run(fds.remove(0), settings(1, 1)).is_err());
}
