//! The manual page ringway(8), made from the command line's own definition, so that it can't say anything else.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::error::{Failure, Outcome};

/// Writes the page in roff.
pub(crate) fn write() -> Outcome {
    io::stdout()
        .write_all(page().as_bytes())
        .map_err(|why| Failure::Failed(format!("standard output: {why}")))
}

fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(text, ".TH RINGWAY 8 \"\" \"ringway {version}\" \"Ringway\"");
    text.push_str(".SH NAME\nringway \\- ");
    text.push_str(&escape(&first_lower(&about(&root))));
    text.push_str("\n.SH SYNOPSIS\n.B ringway\n.I COMMAND\n[ARGUMENTS]\n.SH COMMANDS\n");
    for command in root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        push_command(&mut text, command);
    }
    text.push_str(NOTES);
    text
}

fn push_command(text: &mut String, command: &Command) {
    let _ = writeln!(text, ".SS {}", escape(&usage(command)));
    text.push_str(&escape(&about(command)));
    text.push_str(".\n");
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "help")
    {
        let (name, help) = (escape(&name(argument)), escape(&help(argument)));
        let _ = writeln!(text, ".TP\n.B {name}\n{help}{}.", default(argument));
    }
    if let Some(examples) = command.get_after_help() {
        text.push_str(".PP\n.nf\n");
        text.push_str(&escape(&examples.to_string()));
        text.push_str("\n.fi\n");
    }
}

fn usage(command: &Command) -> String {
    let mut usage = command.get_name().to_owned();
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "help")
    {
        let name = name(argument);
        let piece = if argument.is_required_set() {
            format!(" {name}")
        } else {
            format!(" [{name}]")
        };
        usage.push_str(&piece);
    }
    usage
}

fn name(argument: &Arg) -> String {
    let value = argument
        .get_value_names()
        .and_then(|names| names.first())
        .filter(|_| argument.get_action().takes_values());
    match (argument.get_long(), value) {
        (Some(long), Some(value)) => {
            if argument
                .get_num_args()
                .is_some_and(|count| count.min_values() == 0)
            {
                format!("--{long} [{value}]")
            } else {
                format!("--{long} {value}")
            }
        }
        (Some(long), None) => match argument.get_short() {
            Some(short) => format!("-{short}, --{long}"),
            None => format!("--{long}"),
        },
        (None, Some(value)) => value.to_string(),
        (None, None) => argument.get_id().as_str().to_uppercase(),
    }
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn help(argument: &Arg) -> String {
    argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn default(argument: &Arg) -> String {
    let value = argument
        .get_default_values()
        .first()
        .filter(|_| argument.get_action().takes_values());
    value.map_or_else(String::new, |value| {
        format!("; the default is {}", escape(&value.to_string_lossy()))
    })
}

fn first_lower(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(characters).collect()
    })
}

/// roff reads a backslash, and a dot or an apostrophe at the start of a line, as its own.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| {
        if line.starts_with(['.', '\'']) {
            format!("\\&{line}")
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

const NOTES: &str = "\
.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
Failed; one line on standard error says what, why and what to do.
.TP
.B 2
The command line makes no sense.
.TP
.B 3
The gateway is not running.
.SH ENVIRONMENT
.B RINGWAY_WORKERS, RINGWAY_SHARDS, RINGWAY_CPUS, RINGWAY_POLL
stand for the options of
.B up
of the same names. An option wins over the environment, which wins over the file; an empty variable counts as unset.
.PP
.B RINGWAY_LOG_LEVEL, RINGWAY_LOG_FORMAT
say what the gateway that
.B up
starts logs, and how: see
.BR ringwayd (8).
.SH FILES
.TP
.I /etc/ringway/NAME.toml, /etc/ringway/NAME.conf
Configurations.
.TP
.I /run/ringway/NAME/control.sock
The socket that the supervisor of a running gateway listens on.
.TP
.I /run/ringway/NAME/log
What a gateway in the background has to say; stays when it ended by a failure.
.SH SEE ALSO
.BR ringwayd (8),
.BR ringway.toml (5),
.BR wg (8),
.BR wg-quick (8)
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_and_option_is_in_the_page() {
        let page = page();
        let mut root = Cli::command();
        root.build();
        for command in root
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            assert!(
                page.contains(&format!(".SS {}", command.get_name())),
                "{command}"
            );
            for long in command.get_arguments().filter_map(Arg::get_long) {
                assert!(
                    long == "help" || page.contains(&escape(&format!("--{long}"))),
                    "--{long}"
                );
            }
        }
        assert!(!page.contains("man\n"), "hidden commands stay hidden");
    }

    #[test]
    fn the_page_in_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/man/ringway.8");
        let stored = std::fs::read_to_string(path).unwrap();
        assert!(
            stored == page(),
            "docs/man/ringway.8 is stale: `ringway man > docs/man/ringway.8`"
        );
    }
}
