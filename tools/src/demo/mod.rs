//! `demo`: two gateways in network namespaces of their own, real traffic between them, live figures.
//!
//! Nothing outside the two namespaces sees a packet, and [`stage::Stage`] takes everything down when it is dropped:
//! at the end, on an error, on Ctrl-C.

mod namespaces;
mod packages;
mod script;
mod stage;
mod traffic;

use crate::cli::DemoArgs;
use crate::error::{Failure, Outcome};
use crate::runtime::Runtime;
use crate::sys::signals;
use crate::up;

/// Runs the demonstration.
pub(crate) fn run(runtime: &Runtime, arguments: &DemoArgs) -> Outcome {
    packages::require()?;
    let daemon = up::find_daemon()?;
    signals::catch().map_err(|why| Failure::Failed(format!("demo: {why}")))?;
    let outcome = script::play(runtime, arguments, &daemon);
    if signals::interrupted() {
        return Err(Failure::failed(
            "demo: interrupted; everything it made is gone",
        ));
    }
    outcome
}
