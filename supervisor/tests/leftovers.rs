//! What a gateway leaves behind that failed to start, or was killed: nothing, or nothing that the
//! next start does not take back.
#![allow(clippy::unwrap_used)]

mod host;

use host::{Foreground, Host, directory, error, pid, processes, root, signal, uapi, wait_until};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const EVERYTHING: &str = "\
[Interface]
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
ListenPort = 51999
Address = 10.66.0.1/24, fd66::1/64
DNS = 10.66.0.53, tunnel.example
PreUp = true
PostUp = true

[Peer]
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 0.0.0.0/0, ::/0
";

#[cfg(feature = "test-timers")]
const STEPS: [&str; 22] = [
    "descriptors",
    "segments",
    "netlink",
    "sockets",
    "control",
    "uapi",
    "tun",
    "link",
    "pid",
    "helper",
    "meta",
    "worker",
    "briefing",
    "ready",
    "PreUp",
    "addresses",
    "up",
    "dns",
    "rules",
    "routes",
    "PostUp",
    "report",
];

#[cfg(feature = "test-timers")]
#[test]
fn a_start_that_fails_at_any_step_leaves_nothing() {
    if !root() {
        return;
    }
    let host = Host::new("fail");
    let name = format!("rf{}", std::process::id());
    let path = host.config(&name, EVERYTHING);
    for step in STEPS.into_iter().chain([""]) {
        for way in [&[][..], &["-f"]] {
            if step.is_empty() && !way.is_empty() {
                continue;
            }
            let mut arguments = vec![
                "--log-level",
                "warn",
                "--config",
                path.to_str().unwrap(),
                &name,
            ];
            arguments.extend(way);
            let output = host
                .ringwayd(&arguments)
                .env("RINGWAY_TEST_FAIL", step)
                .output()
                .unwrap();
            if step.is_empty() {
                // The steps are all there are, and without one of them it starts.
                assert!(output.status.success(), "{}", error(&output));
                signal(pid(&name), Signal::SIGTERM);
                wait_until("the end", || host.left(&name).is_empty());
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{step}: {}", error(&output));
            assert_eq!(
                error(&output),
                format!("ringwayd: test: {step} fails\n"),
                "{step}"
            );
            let left = host.left(&name);
            assert!(left.is_empty(), "{step} {way:?}: {left:?}");
        }
    }
}

#[cfg(feature = "test-timers")]
#[test]
fn a_start_that_is_stopped_at_any_step_leaves_nothing() {
    if !root() {
        return;
    }
    let host = Host::new("stop");
    let name = format!("rs{}", std::process::id());
    let path = host.config(&name, EVERYTHING);
    for step in STEPS {
        let start = |way: &[&str]| {
            let arguments = ["--log-level", "warn", "--config", path.to_str().unwrap()];
            host.ringwayd(&[&arguments, way, &[name.as_str()]].concat())
                .env("RINGWAY_TEST_STOP", step)
                .output()
                .unwrap()
        };
        let output = start(&["-f"]);
        assert!(output.status.success(), "{step}: {}", error(&output));
        assert_eq!(error(&output), "", "{step}");
        let left = host.left(&name);
        assert!(left.is_empty(), "{step}: {left:?}");

        // The caller of one in the background is told that there is none.
        let output = start(&[]);
        if step == "report" {
            assert!(output.status.success(), "{}", error(&output));
            wait_until("the end", || host.left(&name).is_empty());
        } else {
            assert_eq!(output.status.code(), Some(1), "{step}");
            assert_eq!(
                error(&output),
                "ringwayd: stopped before it was ready\n",
                "{step}"
            );
            let left = host.left(&name);
            assert!(left.is_empty(), "{step}: {left:?}");
        }
    }
}

/// Whether the process has blocked SIGTERM, to read it when it can deal with it.
fn takes_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    mask.is_some_and(|mask| {
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (Signal::SIGTERM as u32 - 1) & 1 == 1
    })
}

#[test]
fn a_stop_at_any_moment_of_the_start_is_a_clean_one() {
    if !root() {
        return;
    }
    let seed: u64 = std::env::var("RINGWAY_TEST_SEED")
        .map_or_else(|_| std::process::id().into(), |seed| seed.parse().unwrap());
    println!("RINGWAY_TEST_SEED={seed}");
    let mut random = seed | 1;
    let host = Host::new("any");
    let name = format!("ra{}", std::process::id());
    let path = host.config(&name, EVERYTHING);
    for round in 0..24 {
        let arguments = ["-f", "--config", path.to_str().unwrap(), &name];
        let mut gateway = Foreground::start(&mut host.ringwayd(&arguments));
        let pid = gateway.0.id();
        wait_until("signals are taken", || takes_signals(pid));
        // The start takes some tens of milliseconds.
        for shift in [13, -7, 17_i32] {
            random ^= if shift < 0 {
                random >> -shift
            } else {
                random << shift
            };
        }
        let delay = Duration::from_micros(random % 150_000);
        std::thread::sleep(delay);
        signal(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGTERM);
        let mut text = String::new();
        std::io::Read::read_to_string(gateway.0.stderr.as_mut().unwrap(), &mut text).unwrap();
        let status = gateway.0.wait().unwrap();
        assert!(
            status.success(),
            "round {round}, {delay:?}: {status} {text}"
        );
        let left = host.left(&name);
        assert!(left.is_empty(), "round {round}, {delay:?}: {left:?} {text}");
    }
}

#[test]
fn the_callers_interrupt_stops_a_start_in_the_background() {
    if !root() {
        return;
    }
    let host = Host::new("ctrl");
    let name = format!("rc{}", std::process::id());
    let begun = host.files.path().join("begun");
    let config = format!("[Interface]\nPreUp = touch {}; sleep 50\n", begun.display());
    let path = host.config(&name, &config);
    let mut caller =
        Foreground::start(&mut host.ringwayd(&["--config", path.to_str().unwrap(), &name]));
    wait_until("the hook runs", || begun.exists());
    let interrupted = Instant::now();
    let pid = nix::unistd::Pid::from_raw(caller.0.id() as i32);
    signal(pid, Signal::SIGINT);
    assert_eq!(caller.0.wait().unwrap().code(), Some(1));
    assert!(interrupted.elapsed() < Duration::from_secs(20));
    let left = host.left(&name);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_second_signal_cuts_the_last_commands_short() {
    if !root() {
        return;
    }
    let host = Host::new("cut");
    let name = format!("rx{}", std::process::id());
    let file = |what: &str| host.files.path().join(what);
    let (begun, undone) = (file("begun"), file("undone"));
    let config = format!(
        "[Interface]\nPreDown = touch {}; sleep 50\nPreDown = touch {}\n",
        begun.display(),
        undone.display()
    );
    let path = host.config(&name, &config);
    let arguments = ["-f", "--config", path.to_str().unwrap(), &name];
    let mut gateway = Foreground::start(&mut host.ringwayd(&arguments));
    gateway.read_until("ready");
    let pid = nix::unistd::Pid::from_raw(gateway.0.id() as i32);
    let asked = Instant::now();
    signal(pid, Signal::SIGTERM);
    wait_until("the hook runs", || begun.exists());
    let text = gateway.stop();
    assert!(asked.elapsed() < Duration::from_secs(20));
    assert!(text.contains("sleep 50: cut short by a signal"), "{text}");
    assert!(undone.exists(), "the next command runs all the same");
    let left = host.left(&name);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_killed_supervisor_takes_its_gateway_along_and_the_next_start_the_rest() {
    if !root() {
        return;
    }
    let host = Host::new("kill");
    let name = format!("rk{}", std::process::id());
    let path = host.config(&name, EVERYTHING);
    let start = || {
        host.ringwayd(&["--config", path.to_str().unwrap(), &name])
            .output()
            .unwrap()
    };
    let output = start();
    assert!(output.status.success(), "{}", error(&output));
    assert!(processes(&name).len() >= 4);
    signal(pid(&name), Signal::SIGKILL);
    wait_until("the processes go", || processes(&name).is_empty());
    wait_until("the interface goes", || {
        !host.ip(&["-o", "link"]).contains(&name)
    });
    assert!(
        directory(&name).join("lock").exists() && uapi(&name).exists(),
        "the test needs them"
    );

    let plain = host.config(&name, "[Interface]\nListenPort = 51999\n");
    let again = host
        .ringwayd(&["--config", plain.to_str().unwrap(), &name])
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", error(&again));
    let rules = host.ip(&["rule"]);
    assert!(
        !rules.contains("fwmark"),
        "the rules of the killed one: {rules}"
    );
    signal(pid(&name), Signal::SIGTERM);
    wait_until("everything goes", || host.left(&name).is_empty());
}
