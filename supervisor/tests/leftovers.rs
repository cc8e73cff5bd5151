//! What a gateway leaves behind that failed to start, or was killed: nothing, or nothing that the
//! next start does not take back.
#![allow(clippy::unwrap_used)]

mod host;

use host::{Host, directory, error, pid, processes, root, signal, uapi, wait_until};
use nix::sys::signal::Signal;

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
#[test]
fn a_start_that_fails_at_any_step_leaves_nothing() {
    const STEPS: [&str; 23] = [
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
        "",
    ];
    if !root() {
        return;
    }
    let host = Host::new("fail");
    let name = format!("rf{}", std::process::id());
    let path = host.config(&name, EVERYTHING);
    for step in STEPS {
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
