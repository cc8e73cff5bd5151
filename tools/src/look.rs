//! The look-ups: attach, read, show; once or again and again.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::attach::Gateway;
use crate::cli::{LookArgs, RoutesArgs};
use crate::error::{Failure, Outcome};
use crate::model::drops::Drops;
use crate::model::peers::Peers;
use crate::model::rings::Rings;
use crate::model::routes::Routes;
use crate::model::sample::Sample;
use crate::model::shm::Shm;
use crate::model::sockets::Sockets;
use crate::model::status::Status;
use crate::model::workers::Workers;
use crate::model::{Document, Human};
use crate::runtime::Runtime;
use crate::watch::watch;

/// A second.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// `status`.
pub(crate) fn status(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::Now, |gateway, samples| {
        let info = gateway.info();
        Ok(Status::read(
            gateway,
            info.as_ref(),
            samples.now,
            samples.before,
        ))
    })
}

/// `workers`.
pub(crate) fn workers(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::AfterASecond, |_, samples| {
        Ok(Workers::new(
            samples.now,
            samples.second_ago,
            samples.before,
        ))
    })
}

/// `peers`.
pub(crate) fn peers(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::Now, |gateway, samples| {
        Ok(Peers::read(gateway, samples.now, samples.before))
    })
}

/// `routes`.
pub(crate) fn routes(runtime: &Runtime, arguments: &RoutesArgs) -> Outcome {
    let address = arguments.address;
    let mut found = true;
    run(runtime, &arguments.look, When::Now, |gateway, _| {
        let routes = Routes::read(gateway, address);
        found = !routes.routes.is_empty();
        Ok(routes)
    })?;
    if lacks_route(address, found) {
        Err(Failure::Told(1))
    } else {
        Ok(())
    }
}

/// `drops`.
pub(crate) fn drops(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::AfterASecond, |_, samples| {
        Ok(Drops::new(
            samples.now,
            samples.before.or(samples.second_ago),
        ))
    })
}

/// `rings`.
pub(crate) fn rings(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::Now, |_, samples| {
        Ok(Rings::new(samples.now, samples.before))
    })
}

/// `sockets`.
pub(crate) fn sockets(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::Now, |gateway, _| {
        let info = gateway.info().ok_or_else(|| {
            Failure::Failed(format!(
                "sockets {}: only the supervisor knows them and it does not answer: look for a stopped ringwayd with `ps`",
                gateway.name
            ))
        })?;
        Ok(Sockets::new(&info))
    })
}

/// `shm`.
pub(crate) fn shm(runtime: &Runtime, arguments: &LookArgs) -> Outcome {
    run(runtime, arguments, When::Now, |gateway, _| {
        Ok(Shm::read(gateway))
    })
}

/// When a single look shows its figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// At once.
    Now,
    /// After a second, since a figure is of the last second.
    AfterASecond,
}

/// The samples that a document is made of.
#[derive(Clone, Copy)]
pub(crate) struct Samples<'a> {
    /// The newest.
    pub(crate) now: &'a Sample,
    /// That of about a second before.
    pub(crate) second_ago: Option<&'a Sample>,
    /// That of the document before.
    pub(crate) before: Option<&'a Sample>,
}

fn lacks_route(address: Option<IpAddr>, found: bool) -> bool {
    address.is_some() && !found
}

fn run<T: Serialize + Human>(
    runtime: &Runtime,
    arguments: &LookArgs,
    when: When,
    mut read: impl FnMut(&Gateway, Samples<'_>) -> Outcome<T>,
) -> Outcome {
    let (name, interval) = name_and_interval(arguments)?;
    let name = runtime.choose(name)?;
    let gateway = Gateway::attach(runtime, &name)?;
    let first = Sample::take(&gateway);
    let mut make = |samples: Samples<'_>| {
        let unix_ns = samples.now.unix_ns;
        read(&gateway, samples).map(|body| Document::new(&name, unix_ns, body))
    };
    if let Some(interval) = interval {
        return watch(&gateway, first, arguments.json, interval, make);
    }
    let document = if when == When::AfterASecond {
        std::thread::sleep(SECOND);
        let now = Sample::take(&gateway);
        make(Samples {
            now: &now,
            second_ago: Some(&first),
            before: None,
        })?
    } else {
        make(Samples {
            now: &first,
            second_ago: None,
            before: None,
        })?
    };
    write(&if arguments.json {
        json(&document, true)
    } else {
        document.body.human(&name)
    })
}

/// `--watch NAME` is meant as `--watch` and `NAME`; a number is the interval.
fn name_and_interval(arguments: &LookArgs) -> Outcome<(Option<&str>, Option<Duration>)> {
    let name = arguments.name.as_deref();
    let Some(value) = arguments.watch.as_deref() else {
        return Ok((name, None));
    };
    match (value.parse::<f64>(), name) {
        (Ok(seconds), _) if (0.1..=86_400.0).contains(&seconds) => {
            Ok((name, Some(Duration::from_secs_f64(seconds))))
        }
        (Err(_), None) => Ok((Some(value), Some(SECOND))),
        _ => Err(Failure::Usage(format!(
            "--watch {value}: give a number of seconds from 0.1 to 86400"
        ))),
    }
}

/// The document as JSON: for a person, or in one line.
pub(crate) fn json<T: Serialize>(document: &T, pretty: bool) -> String {
    let text = if pretty {
        serde_json::to_string_pretty(document)
    } else {
        serde_json::to_string(document)
    };
    // The models hold nothing that JSON can't: no map with other keys than strings.
    let mut text = text.unwrap_or_else(|why| format!("{{\"error\":{:?}}}", why.to_string()));
    text.push('\n');
    text
}

/// Writes to standard output at once.
pub(crate) fn write(text: &str) -> Outcome {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|why| Failure::Failed(format!("standard output: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(name: Option<&str>, watch: Option<&str>) -> LookArgs {
        LookArgs {
            name: name.map(str::to_owned),
            json: false,
            watch: watch.map(str::to_owned),
        }
    }

    #[test]
    fn watch_understands_a_name_behind_it() {
        let parsed = arguments(None, Some("wg0"));
        assert_eq!(
            name_and_interval(&parsed).unwrap(),
            (Some("wg0"), Some(SECOND))
        );
        let parsed = arguments(Some("wg0"), Some("2.5"));
        let interval = Some(Duration::from_millis(2500));
        assert_eq!(name_and_interval(&parsed).unwrap(), (Some("wg0"), interval));
        assert_eq!(
            name_and_interval(&arguments(None, None)).unwrap(),
            (None, None)
        );
    }

    #[test]
    fn watch_refuses_what_is_no_interval() {
        for (name, watch) in [
            (Some("wg0"), "wg1"),
            (None, "0"),
            (None, "-1"),
            (Some("wg0"), "nan"),
            (None, "1e9"),
        ] {
            assert_eq!(
                name_and_interval(&arguments(name, Some(watch)))
                    .unwrap_err()
                    .code(),
                2
            );
        }
    }

    #[test]
    fn only_a_look_for_an_address_can_find_nothing() {
        assert!(!lacks_route(None, false));
        assert!(!lacks_route(Some(IpAddr::from([10, 0, 0, 1])), true));
        assert!(lacks_route(Some(IpAddr::from([10, 0, 0, 1])), false));
    }
}
