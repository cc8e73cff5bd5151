//! What happens on the stage, step by step.

use std::path::Path;
use std::time::{Duration, Instant};

use ringway_proto::control::Request;
use ringway_proto::keys::{KeyError, PresharedKey, PrivateKey};

use super::stage::{Side, Stage, one_line};
use super::traffic;
use crate::attach::Gateway;
use crate::cli::DemoArgs;
use crate::control;
use crate::error::{Failure, Outcome};
use crate::model::peers::Peers;
use crate::model::sample::Sample;
use crate::runtime::Runtime;
use crate::sys::signals;
use crate::up::find_program;

const PORT: u16 = 51820;
const START: Duration = Duration::from_secs(10);
const HANDSHAKE: Duration = Duration::from_secs(8);

/// Plays the whole; the stage is gone when this returns.
pub(crate) fn play(runtime: &Runtime, arguments: &DemoArgs, daemon: &Path) -> Outcome {
    let begin = Instant::now();
    step(1, "two network namespaces with a veth between them");
    let stage = Stage::build()?;
    step(2, "keys for two gateways, and a preshared key");
    let configurations = configurations()?;
    step(3, "ringwayd at both ends");
    for (side, configuration) in Side::BOTH.into_iter().zip(&configurations) {
        start(&stage, side, configuration, daemon, arguments)?;
    }
    let gateways = [
        attach(runtime, &stage, Side::A)?,
        attach(runtime, &stage, Side::B)?,
    ];
    for (side, gateway) in Side::BOTH.into_iter().zip(&gateways) {
        let workers = gateway.rings.workers();
        tell(&format!(
            "{} in {}: {} {}, {} shards, {}",
            gateway.name,
            stage.namespace(side),
            workers,
            if workers == 1 { "worker" } else { "workers" },
            gateway.geometry.shards,
            side.inside()
        ));
    }
    step(4, "the first packet asks for a handshake");
    handshake(&stage, &gateways[0])?;
    step(5, "ping through the tunnel");
    for address in [Side::B.inside(), Side::B.inside_v6()] {
        tell(&ping(&stage, address)?);
    }
    step(
        6,
        &format!("iperf3 through the tunnel for {} s", arguments.seconds),
    );
    let summary = traffic::run(&stage, &gateways, arguments.seconds)?;
    step(7, "both gateways stop, everything that was made goes");
    drop(gateways);
    for side in Side::BOTH {
        control::change(runtime, &stage.gateway(side), &Request::Stop, "down")?;
    }
    drop(stage);
    println!(
        "\ndone in {:.1} s: {summary}",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

fn step(number: u8, what: &str) {
    println!("[{number}/7] {what}");
}

fn tell(what: &str) {
    println!("      {what}");
}

/// A configuration for each side.
fn configurations() -> Outcome<[String; 2]> {
    let failed = |why: KeyError| Failure::Failed(format!("demo: {why}"));
    let keys = [
        PrivateKey::generate().map_err(failed)?,
        PrivateKey::generate().map_err(failed)?,
    ];
    let preshared = PresharedKey::generate().map_err(failed)?;
    Ok([
        configuration(Side::A, &keys[0], &keys[1], &preshared),
        configuration(Side::B, &keys[1], &keys[0], &preshared),
    ])
}

fn configuration(
    side: Side,
    own: &PrivateKey,
    peer: &PrivateKey,
    preshared: &PresharedKey,
) -> String {
    let other = side.other();
    // Only one end knows where the other is: the other learns it from the handshake, as a roaming client's is learned.
    let endpoint = match side {
        Side::A => format!("Endpoint = {}:{PORT}\n", other.outside()),
        Side::B => String::new(),
    };
    format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT}\nAddress = {}/24, {}/64\n\n\
         [Peer]\n# Name = gateway-{}\nPublicKey = {}\nPresharedKey = {}\n{endpoint}AllowedIPs = {}/32, {}/128\n",
        own.to_base64().as_str(),
        side.inside(),
        side.inside_v6(),
        other.letter(),
        peer.public(),
        preshared.to_base64().as_str(),
        other.inside(),
        other.inside_v6(),
    )
}

fn start(
    stage: &Stage,
    side: Side,
    configuration: &str,
    daemon: &Path,
    arguments: &DemoArgs,
) -> Outcome {
    let name = stage.gateway(side);
    let file = stage.write(&format!("{name}.conf"), configuration)?;
    let file = file.to_string_lossy();
    let workers = arguments.workers.to_string();
    let flags = ["--workers", &workers, "--config", &file, &name];
    let command = stage.command(side, daemon, &flags);
    let output = Stage::finish("ringwayd", command, START)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "demo: ringwayd {name}: {}",
        one_line(&output.stderr)
    )))
}

fn attach(runtime: &Runtime, stage: &Stage, side: Side) -> Outcome<Gateway> {
    Gateway::attach(runtime, &stage.gateway(side))
}

/// Sends one packet and waits until the handshake that it needs is done.
fn handshake(stage: &Stage, gateway: &Gateway) -> Outcome {
    let begin = Instant::now();
    let ping = program("ping")?;
    let command = stage.command(
        Side::A,
        &ping,
        &["-n", "-c", "1", "-W", "5", Side::B.inside()],
    );
    Stage::finish("ping", command, HANDSHAKE)?;
    loop {
        let peers = Peers::read(gateway, &Sample::take(gateway), None);
        let peer = peers.peers.first();
        if peer.is_some_and(|peer| peer.last_handshake_seconds.is_some()) {
            tell(&format!(
                "done in {:.1} ms, and the packet that waited for it was answered",
                begin.elapsed().as_secs_f64() * 1_000.0
            ));
            return Ok(());
        }
        if begin.elapsed() > HANDSHAKE || signals::interrupted() {
            let refusal = peer.and_then(|peer| peer.last_refusal.as_ref());
            let why = refusal.map_or("no refusal either", |refusal| refusal.reason);
            return Err(Failure::Failed(format!(
                "demo: no handshake within {} s ({why})",
                HANDSHAKE.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Five pings; the line of ping's own summary.
fn ping(stage: &Stage, address: &str) -> Outcome<String> {
    let ping = program("ping")?;
    let command = stage.command(
        Side::A,
        &ping,
        &["-n", "-q", "-c", "5", "-i", "0.2", "-W", "2", address],
    );
    let output = Stage::finish("ping", command, Duration::from_secs(8))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |start: &str| {
        text.lines()
            .find(|line| line.contains(start))
            .unwrap_or("")
            .trim()
    };
    if !output.status.success() {
        return Err(Failure::Failed(format!(
            "demo: ping {address}: {}",
            line("packets transmitted")
        )));
    }
    Ok(format!(
        "{address}: {}; {}",
        line("packets transmitted"),
        line("rtt")
    ))
}

/// A program that [`super::packages`] has seen to.
pub(super) fn program(name: &str) -> Outcome<std::path::PathBuf> {
    find_program(name).ok_or_else(|| Failure::Failed(format!("demo: {name} is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_configurations_are_understood() {
        let [a, b] = configurations().unwrap();
        let read = |text: &str| {
            ringway_proto::config::parse(text, Path::new("demo.conf"))
                .unwrap()
                .config
        };
        let (a, b) = (read(&a), read(&b));
        let public = |config: &ringway_proto::config::Config| {
            config.interface.private_key.as_ref().unwrap().public()
        };
        assert_eq!(a.peers[0].public_key, public(&b));
        assert_eq!(b.peers[0].public_key, public(&a));
        assert_eq!(a.peers[0].name.as_deref(), Some("gateway-b"));
        assert!(a.peers[0].endpoint.is_some());
        assert!(b.peers[0].endpoint.is_none());
    }
}
