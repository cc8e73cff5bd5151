//! A WireGuard interface of any implementation, driven by `wg` and `ip`.

use std::net::IpAddr;
use std::time::Duration;

use crate::command::{self, Said};
use crate::config::KeyPair;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::{binaries, gateway, names, uapi, wait};

/// Who runs the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The daemon under test.
    Ringway,
    /// Debian's.
    WireguardGo,
    /// `boringtun-cli` of crates.io.
    Boringtun,
}

/// How long a daemon may take until its socket answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running interface.
#[derive(Debug)]
pub struct Tunnel<'a> {
    /// Where it runs.
    pub namespace: &'a Namespace,
    /// Who runs it.
    pub implementation: Implementation,
    /// The interface's name.
    pub name: String,
    /// The daemon.
    pub process: Process,
    /// Its keys.
    pub keys: KeyPair,
}

impl<'a> Tunnel<'a> {
    /// Starts one, with a key, in the foreground.
    pub fn start(namespace: &'a Namespace, implementation: Implementation) -> Tunnel<'a> {
        Tunnel::start_with(namespace, implementation, &[], &[])
    }

    /// Starts one with more environment and arguments.
    pub fn start_with(
        namespace: &'a Namespace,
        implementation: Implementation,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> Tunnel<'a> {
        let mut tunnel = Tunnel::start_bare(namespace, implementation, environment, arguments);
        tunnel.await_socket();
        let private = tunnel.keys.private.clone();
        tunnel.feed(&["private-key", "/dev/stdin"], &private);
        tunnel
    }

    /// Starts the daemon and waits for nothing.
    pub fn start_bare(
        namespace: &'a Namespace,
        implementation: Implementation,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> Tunnel<'a> {
        let name = names::interface();
        let mut words = match implementation {
            Implementation::Ringway => vec![binaries::ringwayd(), "-f".into()],
            Implementation::WireguardGo => vec![binaries::wireguard_go(), "-f".into()],
            Implementation::Boringtun => {
                vec![
                    binaries::boringtun(),
                    "-f".into(),
                    "--disable-drop-privileges".into(),
                ]
            }
        };
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        words.push(name.clone());
        let process = Process::start(&namespace.words(&words), environment);
        Tunnel {
            namespace,
            implementation,
            name,
            process,
            keys: KeyPair::new(),
        }
    }

    /// Waits until the daemon answers on its UAPI socket.
    pub fn await_socket(&mut self) {
        wait::holds("the UAPI socket to answer", START_LIMIT, || {
            self.process.must_run();
            uapi::ask(&self.name, "get=1\n").is_ok()
        });
    }

    /// `wg set INTERFACE ...`; it must succeed.
    pub fn set(&self, line: &str) {
        self.feed(&line.split_whitespace().collect::<Vec<_>>(), "");
    }

    /// `wg set INTERFACE ...` with an input.
    pub fn feed(&self, words: &[&str], input: &str) {
        let said = self.wg("set", words, input);
        assert!(said.ok(), "wg set {words:?}: {}{}", said.out, said.err);
    }

    /// `wg VERB INTERFACE ...` with an input, whatever the outcome.
    pub fn wg(&self, verb: &str, words: &[&str], input: &str) -> Said {
        let mut all = vec!["wg", verb, &self.name];
        all.extend(words);
        command::attempt_with_input(&self.namespace.words(&all), &[], input)
    }

    /// `wg show INTERFACE FIELD`.
    pub fn show(&self, field: &str) -> String {
        let said = self.wg("show", &[field], "");
        assert!(said.ok(), "wg show {field}: {}{}", said.out, said.err);
        said.out
    }

    /// The value of a `wg show` field for one peer, split in words.
    pub fn show_peer(&self, field: &str, public_key: &str) -> Vec<String> {
        self.show(field)
            .lines()
            .map(str::split_whitespace)
            .find_map(|mut words| {
                (words.next() == Some(public_key)).then(|| words.map(str::to_owned).collect())
            })
            .unwrap_or_default()
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.show("listen-port").trim().parse().unwrap()
    }

    /// Adds addresses (with prefix lengths) and brings the interface up.
    pub fn up(&self, addresses: &[&str]) {
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            self.namespace
                .ip(&format!("address add {address} dev {} {nodad}", self.name));
        }
        self.namespace.ip(&format!("link set {} up", self.name));
    }

    /// Pings until there is an answer: the first packet begins a handshake.
    pub fn ping(&self, address: IpAddr) {
        let address = address.to_string();
        let said = self.namespace.attempt(&[
            "ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "5", "-w", "8", "-I", &self.name,
            &address,
        ]);
        assert!(
            said.out.contains(" received") && !said.out.contains(" 0 received"),
            "no answer from {address}: {}{}{}",
            said.out,
            said.err,
            self.diagnosis()
        );
    }

    /// What `wg` and, of Ringway, the drops say: for a failure's message.
    pub fn diagnosis(&self) -> String {
        let mut text = self.namespace.attempt(&["wg", "show", "all"]).out;
        if self.implementation == Implementation::Ringway {
            text += &gateway::ringway(&["drops", &self.name]).out;
        }
        text
    }

    /// Seconds since 1970 of the last handshake with a peer, zero for never.
    pub fn last_handshake(&self, public_key: &str) -> u64 {
        self.show_peer("latest-handshakes", public_key)
            .first()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
    }

    /// Bytes received from and sent to a peer.
    pub fn transfer(&self, public_key: &str) -> (u64, u64) {
        let words = self.show_peer("transfer", public_key);
        let number = |at: usize| {
            words
                .get(at)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0)
        };
        (number(0), number(1))
    }
}
