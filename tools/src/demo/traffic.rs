//! iperf3 through the tunnel, and the table of workers while it runs.

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::script::program;
use super::stage::{Side, Stage, one_line, wait};
use crate::attach::Gateway;
use crate::error::{Failure, Outcome};
use crate::model::moved::Moved;
use crate::model::sample::Sample;
use crate::model::workers::Workers;
use crate::render::table::Table;
use crate::render::units;
use crate::sys::signals;

/// Runs the traffic from a to b and gives one line about it.
pub(crate) fn run(stage: &Stage, gateways: &[Gateway; 2], seconds: u8) -> Outcome<String> {
    let server = serve(stage)?;
    let iperf = program("iperf3")?;
    let length = seconds.to_string();
    let arguments = [
        "-c",
        Side::B.inside(),
        "-t",
        &length,
        "-J",
        "--connect-timeout",
        "3000",
    ];
    let failed = |why: io::Error| Failure::Failed(format!("demo: iperf3: {why}"));
    let mut client = stage
        .command(Side::A, &iperf, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    show(gateways, &mut client);
    let output = wait(
        "iperf3",
        client,
        Duration::from_secs(u64::from(seconds) + 5),
    )?;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    wait("iperf3 -s", server, Duration::from_secs(3))?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let Some(rate) = rate.filter(|_| output.status.success()) else {
        let why = report["error"]
            .as_str()
            .map_or_else(|| one_line(&output.stderr), str::to_owned);
        return Err(Failure::Failed(format!("demo: iperf3: {why}")));
    };
    let retransmits = report["end"]["sum_sent"]["retransmits"]
        .as_u64()
        .unwrap_or(0);
    let last = gateways.each_ref().map(Sample::take);
    let drops: u64 = last.iter().map(Sample::drops).sum();
    let queues: u64 = last.iter().filter_map(|sample| sample.queue_drops).sum();
    Ok(format!(
        "{} of TCP through the tunnel ({retransmits} retransmissions; dropped: {queues} by full TUN queues, {drops} by the gateways)",
        units::bits_per_second(rate)
    ))
}

/// Starts the server and waits until it says that it listens.
fn serve(stage: &Stage) -> Outcome<Child> {
    let iperf = program("iperf3")?;
    let mut server = stage
        .command(
            Side::B,
            &iperf,
            &["-s", "-1", "--forceflush", "-B", Side::B.inside()],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|why| Failure::Failed(format!("demo: iperf3 -s: {why}")))?;
    let Some(output) = server.stdout.take() else {
        return Err(Failure::failed("demo: iperf3 -s: no output"));
    };
    let mut lines = BufReader::new(output);
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            let _ = server.wait();
            return Err(Failure::failed(
                "demo: iperf3 -s does not listen: try `iperf3 -s` by itself",
            ));
        }
    }
    // What else it prints nobody reads; the pipe holds far more than one report.
    server.stdout = Some(lines.into_inner());
    Ok(server)
}

/// A table every second, drawn over the former one on a terminal, until the client ends.
fn show(gateways: &[Gateway; 2], client: &mut Child) {
    let redraws = io::stdout().is_terminal();
    let mut before = gateways.each_ref().map(Sample::take);
    let mut drawn = 0;
    let mut next = Instant::now() + Duration::from_secs(1);
    loop {
        while Instant::now() < next {
            if signals::interrupted() || !matches!(client.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        next += Duration::from_secs(1);
        let now = gateways.each_ref().map(Sample::take);
        let text = table(gateways, &now, &before);
        if redraws && drawn > 0 {
            print!("\x1b[{drawn}A\x1b[J");
        }
        print!("{text}");
        let _ = io::Write::flush(&mut io::stdout());
        drawn = text.lines().count();
        before = now;
    }
}

fn table(gateways: &[Gateway; 2], now: &[Sample; 2], before: &[Sample; 2]) -> String {
    let mut table = Table::new(&[
        "      GATEWAY",
        "PROCESS",
        ">CPU",
        ">BUSY",
        ">RX PPS",
        ">RX RATE",
        ">TX PPS",
        ">TX RATE",
        ">DROPS",
    ]);
    for ((gateway, now), before) in gateways.iter().zip(now).zip(before) {
        let workers = Workers::new(now, Some(before), Some(before));
        for worker in &workers.workers {
            let busy = worker.process.busy_fraction;
            let cpu = worker.process.cpu;
            let mut cells = vec![
                format!("      {}", gateway.name),
                format!("worker {}", worker.slot),
                cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
                busy.map_or_else(String::new, units::percent),
            ];
            cells.extend(worker.moved.cells());
            table.row(cells);
        }
        if workers.workers.len() > 1 {
            table.row(all(&workers.total));
        }
    }
    table.render()
}

fn all(total: &Moved) -> Vec<String> {
    let mut cells = vec![
        String::new(),
        "all".to_owned(),
        String::new(),
        String::new(),
    ];
    cells.extend(total.cells());
    cells
}
