//! `ringway`: starts and stops gateways, and looks into them while they run.
//!
//! A look-up attaches read-only to the shared memory of a gateway ([`attach`]), reads the counters ([`model`]) and
//! writes a table or JSON ([`render`], [`look`]). It needs nothing from the daemon but a descriptor. What changes a
//! gateway goes through the supervisor's control socket ([`control`], [`up`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attach;
mod cli;
mod control;
mod demo;
mod error;
mod keys;
mod look;
mod man;
mod model;
mod names;
mod render;
mod runtime;
mod sys;
mod up;
mod watch;

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;

use cli::{Cli, Command};
use error::{Failure, Outcome};
use runtime::Runtime;

fn main() -> ExitCode {
    sys::signals::end_on_broken_pipe();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Told(_)) {
                eprintln!("ringway: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command) -> Outcome {
    let runtime = Runtime::default();
    match command {
        Command::Up(arguments) => up::up(&arguments),
        Command::Down(arguments) => up::down(&runtime, &arguments),
        Command::Reload(arguments) => up::reload(&runtime, &arguments),
        Command::Status(arguments) => look::status(&runtime, &arguments),
        Command::Workers(arguments) => look::workers(&runtime, &arguments),
        Command::Peers(arguments) => look::peers(&runtime, &arguments),
        Command::Routes(arguments) => look::routes(&runtime, &arguments),
        Command::Drops(arguments) => look::drops(&runtime, &arguments),
        Command::Rings(arguments) => look::rings(&runtime, &arguments),
        Command::Sockets(arguments) => look::sockets(&runtime, &arguments),
        Command::Shm(arguments) => look::shm(&runtime, &arguments),
        Command::Genkey => keys::genkey(),
        Command::Pubkey => keys::pubkey(),
        Command::Genpsk => keys::genpsk(),
        Command::Demo(arguments) => demo::run(&runtime, &arguments),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "ringway", &mut io::stdout());
            Ok(())
        }
        Command::Man => man::write(),
    }
}

/// Help and versions go to standard output as they are; a usage error is one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            eprintln!("ringway: {}", cli::one_line(error));
            ExitCode::from(2)
        }
    }
}
