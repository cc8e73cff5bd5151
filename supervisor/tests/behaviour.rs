//! A running gateway: what it answers, what it does meanwhile, what a reload changes.
#![allow(clippy::unwrap_used)]

mod host;

use host::{Foreground, Host, directory, error, pid, root, signal, wait_until};
use nix::sys::signal::Signal;
use ringway_proto::codec;
use ringway_proto::control::{REQUEST_LIMIT, RESPONSE_LIMIT, Request, Response};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const KEY: &str = "PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
const PEER: &str = "[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";

/// What the gateway answers; the caller waits as long as a command may take.
fn ask(name: &str, request: &Request) -> Response {
    let mut stream = UnixStream::connect(directory(name).join("control.sock")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(&codec::frame(request, REQUEST_LIMIT).unwrap())
        .unwrap();
    let mut bytes = Vec::new();
    loop {
        if let Some((response, _)) = codec::unframe(&bytes, RESPONSE_LIMIT).unwrap() {
            return response;
        }
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "no answer");
        bytes.extend_from_slice(&piece[..length]);
    }
}

fn reload(name: &str) -> Response {
    ask(
        name,
        &Request::Reload {
            keep_runtime: false,
        },
    )
}

fn start(host: &Host, name: &str, text: &str) {
    let path = host.config(name, text);
    let output = host
        .ringwayd(&["--config", path.to_str().unwrap(), name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", error(&output));
}

#[test]
fn a_reload_changes_the_interface_or_says_what_it_does_not() {
    if !root() {
        return;
    }
    let host = Host::new("reload");
    let name = format!("rl{}", std::process::id());
    let log = host.files.path().join("hooks");
    let hook = |text: &str| format!("echo {text} >> {}", log.display());
    let listening = || host.output("ss", &["-Hlun"]);
    start(
        &host,
        &name,
        &format!(
            "[Interface]\n{KEY}ListenPort = 51999\nAddress = 10.8.0.1/24\nDNS = 10.8.0.53\nPreDown = {}\n{PEER}AllowedIPs = 10.9.0.0/16\n",
            hook("old")
        ),
    );
    assert_eq!(reload(&name), Response::Ok);

    host.config(
        &name,
        &format!(
            "[Interface]\n{KEY}ListenPort = 51999\nListenAddress = 127.0.0.1\nBindDevice = lo\nAddress = 10.8.0.2/24\nMTU = 1300\nDNS = 10.8.0.54\n\
             Table = 77\nWorkers = 1\nPreDown = {}\nPostDown = {}\n{PEER}AllowedIPs = 10.9.0.0/16, 0.0.0.0/0\n",
            hook("before"),
            hook("after")
        ),
    );
    let Response::Noted { remark } = reload(&name) else {
        panic!("no remark");
    };
    assert!(
        remark.contains("Workers") && !remark.contains("Table"),
        "{remark}"
    );
    wait_until("the new sockets alone", || {
        let sockets = listening();
        sockets.contains("127.0.0.1%lo:51999") && !sockets.contains("0.0.0.0:51999")
    });
    assert!(
        host.ip(&["route", "show", "table", "77"])
            .contains("default")
    );
    assert!(!host.ip(&["route"]).contains("10.9.0.0"));
    assert!(host.ip(&["address"]).contains("10.8.0.2/24"));
    assert!(host.ip(&["link"]).contains("mtu 1300"));
    assert!(
        host.dns().ends_with("nameserver 10.8.0.54\n"),
        "{}",
        host.dns()
    );

    let text = format!(
        "[Interface]\n{KEY}Address = 10.8.0.2/24\nPostDown = {}\n{PEER}AllowedIPs = 10.9.0.0/16, 0.0.0.0/0\n",
        hook("after")
    );
    host.config(&name, &text);
    let Response::Noted { remark } = reload(&name) else {
        panic!("no remark");
    };
    assert!(
        remark.contains("MTU") && remark.contains("1300"),
        "{remark}"
    );
    wait_until("the old sockets alone", || !listening().contains("%lo"));
    assert!(
        listening().contains("0.0.0.0:51999"),
        "a port that the file does not name stays"
    );
    assert!(host.ip(&["rule"]).contains("fwmark"));
    assert!(host.dns().contains("-d "), "{}", host.dns());

    host.config(&name, &format!("{text}AllowedIPs = 300.0.0.0/8\n"));
    let Response::Error { message } = reload(&name) else {
        panic!("no error");
    };
    assert!(
        message.contains(".conf:") && message.contains("300.0.0.0/8"),
        "{message}"
    );
    assert!(host.ip(&["rule"]).contains("fwmark"), "nothing has changed");

    // In another namespace nothing of the interface can be set, and nothing else be mistaken for it.
    let inner = Host::new("inner");
    let index = host.output("cat", &[&format!("/sys/class/net/{name}/ifindex")]);
    host.ip(&["link", "set", &name, "netns", inner.name()]);
    host.ip(&[
        "link",
        "add",
        "other",
        "index",
        index.trim(),
        "type",
        "veth",
    ]);
    host.config(&name, &text.replace("Address", "MTU = 1200\nAddress"));
    let Response::Noted { remark } = reload(&name) else {
        panic!("no remark");
    };
    assert!(remark.contains("another network namespace"), "{remark}");
    assert!(host.ip(&["link"]).contains("other"));
    assert!(inner.ip(&["link"]).contains("mtu 1300"));

    assert_eq!(ask(&name, &Request::Stop), Response::Ok);
    assert_eq!(fs::read_to_string(log).unwrap(), "after\n");
    wait_until("everything goes", || host.left(&name).is_empty());
}

#[test]
fn signals_and_requests_are_served_while_a_command_runs() {
    if !root() {
        return;
    }
    let host = Host::new("busy");
    let name = format!("rb{}", std::process::id());
    let slow = host.files.path().join("slow");
    let text = format!(
        "[Interface]\nDNS = 10.8.0.53\nPostUp = touch {}; sleep 600\n",
        slow.display()
    );
    let path = host.config(&name, &text);
    let mut gateway =
        Foreground::start(&mut host.ringwayd(&["-f", "--config", path.to_str().unwrap(), &name]));
    wait_until("the hook runs", || slow.exists());
    assert!(matches!(ask(&name, &Request::Info), Response::Info(_)));
    signal(pid(&name), Signal::SIGTERM);
    assert_eq!(gateway.0.wait().unwrap().code(), Some(0));
    wait_until("everything goes", || host.left(&name).is_empty());

    start(&host, &name, "[Interface]\n");
    // From now on resolvconf takes long, and a reload needs it.
    let asked = host.files.path().join("asked");
    host.program(
        "resolvconf",
        &format!("#!/bin/sh\ntouch {}\nsleep 600\n", asked.display()),
    );
    host.config(&name, "[Interface]\nDNS = 10.8.0.54\n");
    signal(pid(&name), Signal::SIGHUP);
    wait_until("resolvconf runs", || asked.exists());
    assert!(matches!(ask(&name, &Request::Info), Response::Info(_)));
    host.program("resolvconf", "#!/bin/sh\n");
    assert_eq!(ask(&name, &Request::Stop), Response::Ok);
    wait_until("everything goes", || host.left(&name).is_empty());
}

#[test]
fn messages_are_of_the_level_and_format_that_was_asked_for() {
    if !root() {
        return;
    }
    let host = Host::new("log");
    let name = format!("rj{}", std::process::id());
    let there = || directory(&name).join("control.sock").exists();
    let run = |arguments: &[&str]| {
        let arguments = [&["-f"], arguments, &[name.as_str()]].concat();
        let gateway = Foreground::start(&mut host.ringwayd(&arguments));
        wait_until("the start", || {
            there() && host.output("wg", &["show", &name, "listen-port"]).len() > 1
        });
        let text = gateway.stop();
        assert!(!directory(&name).exists());
        text
    };
    let json = run(&["--log-format", "json", "--log-level", "debug"]);
    assert!(json.contains("\"level\":\"DEBUG\""), "{json}");
    for line in json.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
    assert_eq!(run(&["--log-level", "error"]), "");
    let mut gateway = Foreground::start(&mut host.ringwayd(&["-f", &name]));
    let text = gateway.read_until("ready");
    assert!(text.lines().last().unwrap().contains("INFO"), "{text}");
    gateway.stop();

    let arguments = [
        "--log-format",
        "json",
        "--config",
        "/nonexistent.conf",
        &name,
    ];
    let failed = host.ringwayd(&arguments).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(error(&failed).starts_with('{'), "{}", error(&failed));
}

#[test]
fn what_is_wrong_with_the_host_is_one_line() {
    if !root() {
        return;
    }
    let host = Host::new("wrong");
    let name = format!("rw{}", std::process::id());
    let refused = |text: &str, what: &str| {
        let path = host.config(&name, text);
        for way in [&[][..], &["-f"]] {
            let arguments = [&["--config", path.to_str().unwrap(), &name][..], way].concat();
            let output = host.ringwayd(&arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{text}: {}", error(&output));
            assert_eq!(error(&output).lines().count(), 1, "{}", error(&output));
            assert!(error(&output).contains(what), "{}", error(&output));
            assert!(host.left(&name).is_empty(), "{:?}", host.left(&name));
        }
    };
    refused(
        "[Interface]\nBindDevice = nosuch0\n",
        "BindDevice nosuch0: there is no such interface",
    );
    refused(
        "[Interface]\nListenAddress = 192.0.2.7\n",
        "ListenAddress 192.0.2.7: no interface has",
    );
    host.output("sysctl", &["-qw", "net.ipv6.conf.all.disable_ipv6=1"]);
    host.output("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1"]);
    refused(
        "[Interface]\nAddress = fd00::1/64\n",
        "this host has no IPv6",
    );
    refused(
        &format!("[Interface]\n{KEY}{PEER}AllowedIPs = ::/0\n"),
        "this host has no IPv6",
    );

    let hidden = format!(
        "mount -t tmpfs x /dev/net; exec {} {name}",
        env!("CARGO_BIN_EXE_ringwayd")
    );
    let output = host
        .command("unshare", &["-m", "sh", "-c", &hidden])
        .output()
        .unwrap();
    assert!(
        error(&output).starts_with("ringwayd: no /dev/net/tun"),
        "{}",
        error(&output)
    );
    let weak = [
        "--bounding-set",
        "-net_admin",
        "--inh-caps",
        "-net_admin",
        env!("CARGO_BIN_EXE_ringwayd"),
        &name,
    ];
    let output = host.command("setpriv", &weak).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error(&output).contains("CAP_NET_ADMIN"),
        "{}",
        error(&output)
    );
    assert!(host.left(&name).is_empty(), "{:?}", host.left(&name));
}

#[test]
fn a_second_start_touches_nothing() {
    if !root() {
        return;
    }
    let host = Host::new("second");
    let name = format!("rn{}", std::process::id());
    start(&host, &name, "[Interface]\nListenPort = 51999\n");
    let files = || {
        let mut names: Vec<_> = fs::read_dir(directory(&name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = files();
    for way in [&[][..], &["-f"]] {
        let output = host.ringwayd(&[way, &[&name]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            error(&output).starts_with(&format!("ringwayd: {name} runs already")),
            "{}",
            error(&output)
        );
        assert_eq!(files(), before);
        assert!(host::uapi(&name).exists());
    }
    let other = host.config("other", "[Interface]\nListenPort = 51999\n");
    let output = host
        .ringwayd(&["--config", other.to_str().unwrap(), "rn-other"])
        .output()
        .unwrap();
    assert!(
        error(&output).contains("port 51999 of 0.0.0.0 is taken"),
        "{}",
        error(&output)
    );
    assert!(!directory("rn-other").exists());
    assert!(matches!(ask(&name, &Request::Info), Response::Info(_)));
    assert_eq!(ask(&name, &Request::Stop), Response::Ok);
    wait_until("everything goes", || host.left(&name).is_empty());
}

#[test]
fn as_process_1_it_reaps_what_others_leave() {
    if !root() {
        return;
    }
    let host = Host::new("init");
    let name = format!("ri{}", std::process::id());
    let lived = host.files.path().join("lived");
    let text = format!(
        "[Interface]\nPostUp = (setsid sh -c 'sleep 0.3; touch {}' &)\n",
        lived.display()
    );
    let path = host.config(&name, &text);
    let daemon = env!("CARGO_BIN_EXE_ringwayd");
    let arguments = [
        "-p",
        "-f",
        "--mount-proc",
        daemon,
        "-f",
        "--config",
        path.to_str().unwrap(),
        &name,
    ];
    let gateway = Foreground::start(&mut host.command("unshare", &arguments));
    wait_until("the orphan lived", || lived.exists());
    let supervisor = host::processes(&name).into_iter().min().unwrap();
    let zombies = || {
        let children =
            fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        let state = |pid: &str| {
            fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default()
        };
        children
            .split_whitespace()
            .filter(|pid| state(pid).contains(") Z "))
            .count()
    };
    wait_until("the orphan is reaped", || {
        zombies() == 0 && host.output("wg", &["show"]).contains(&name)
    });
    // It still notices the end of its own.
    signal(
        nix::unistd::Pid::from_raw(supervisor as i32),
        Signal::SIGTERM,
    );
    wait_until("everything goes", || host.left(&name).is_empty());
    drop(gateway);
}
