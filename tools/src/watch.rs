//! A look-up again and again: pacing, redrawing, and knowing when it is over.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;

use crate::attach::Gateway;
use crate::error::{Failure, Outcome};
use crate::look::{SECOND, Samples, json, write};
use crate::model::sample::Sample;
use crate::model::workers::{DEAD, kernel_state};
use crate::model::{Document, Human};
use crate::sys::{signals, terminal};

/// Shows a document every `interval` until somebody presses q, sends a signal, or the gateway ends.
pub(crate) fn watch<T: Serialize + Human>(
    gateway: &Gateway,
    first: Sample,
    as_json: bool,
    interval: Duration,
    mut make: impl FnMut(Samples<'_>) -> Outcome<Document<T>>,
) -> Outcome {
    signals::catch().map_err(|why| Failure::Failed(format!("watch: {why}")))?;
    let redraws = !as_json && io::stdout().is_terminal();
    let keys = terminal::Keys::take();
    let mut shown = first.clone();
    let mut recent = VecDeque::from([first]);
    // Nobody waits long for the first figures.
    let mut wait = interval.min(SECOND);
    loop {
        if pause(gateway, &keys, wait, &mut recent) {
            return Ok(());
        }
        wait = interval;
        let now = Sample::take(gateway);
        let second_ago = a_second_before(&recent, now.boot_ns);
        let document = make(Samples {
            now: &now,
            second_ago,
            before: Some(&shown),
        })?;
        if as_json {
            write(&json(&document, false))?;
        } else {
            let body = document.body.human(&document.name);
            let text = format!("{}  {}\n{body}\n", document.name, document.at);
            write(&if redraws {
                terminal::screen(&text)
            } else {
                text
            })?;
        }
        if has_ended(&now) {
            return Err(Failure::NotRunning(format!(
                "{}: the gateway has ended",
                gateway.name
            )));
        }
        recent.push_back(now.clone());
        // Enough for a second at the shortest interval.
        while recent.len() > 16 {
            recent.pop_front();
        }
        shown = now;
    }
}

/// Waits for `interval`, with a sample one second before its end; true: it is time to quit.
fn pause(
    gateway: &Gateway,
    keys: &terminal::Keys,
    interval: Duration,
    recent: &mut VecDeque<Sample>,
) -> bool {
    if let Some(before) = interval
        .checked_sub(SECOND)
        .filter(|before| !before.is_zero())
    {
        if keys.quit_within(before) {
            return true;
        }
        recent.push_back(Sample::take(gateway));
    }
    keys.quit_within(interval.min(SECOND))
}

/// The sample that is nearest to a second old.
fn a_second_before(recent: &VecDeque<Sample>, now_ns: u64) -> Option<&Sample> {
    let wanted = now_ns.saturating_sub(SECOND.as_nanos() as u64);
    recent
        .iter()
        .min_by_key(|sample| sample.boot_ns.abs_diff(wanted))
}

/// Every process of the gateway is dead or was never there.
fn has_ended(sample: &Sample) -> bool {
    let workers = sample.workers.iter().map(|worker| &worker.process);
    let processes = [&sample.supervisor, &sample.meta, &sample.helper]
        .into_iter()
        .chain(workers);
    let mut pids = processes.filter_map(|process| process.pid);
    pids.all(|pid| kernel_state(pid) == DEAD)
}
