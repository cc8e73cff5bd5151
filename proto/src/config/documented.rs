//! Holds the documentation to the code: every example is read, every key is told.

use std::path::Path;

use super::field::{FIELDS, Field, Format, Key, Section};
use super::{Config, parse_conf, parse_toml};

const GUIDE: &str = include_str!("../../../docs/configuration.md");
const MANUAL: &str = include_str!("../../../docs/man/ringway.toml.5");

/// The texts between a fence of this language and the next fence.
fn examples(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    GUIDE
        .split(fence.as_str())
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_examples_of_either_format_are_the_same() {
    let read = |example: &&str| parse_conf(example, Path::new("x.conf")).unwrap();
    let conf: Vec<_> = examples("ini").iter().map(read).collect();
    let read = |example: &&str| parse_toml(example, Path::new("x.toml")).unwrap();
    let toml: Vec<_> = examples("toml").iter().map(read).collect();
    assert_eq!(conf.len(), 2);
    assert_eq!(conf, toml);
    assert!(
        conf.iter()
            .all(|loaded| loaded.warnings.is_empty() && loaded.config != Config::default())
    );
}

#[test]
fn the_example_of_the_manual_is_read() {
    let example = MANUAL
        .split(".nf\n")
        .nth(1)
        .unwrap()
        .split(".fi")
        .next()
        .unwrap();
    assert_eq!(
        parse_toml(example, Path::new("x.toml"))
            .unwrap()
            .config
            .peers
            .len(),
        1
    );
}

#[test]
fn every_key_is_told_with_what_wg_quick_makes_of_it() {
    for field in FIELDS {
        let (conf, toml) = (conf_name(field), field.name(Format::Toml));
        let row = format!("| `{conf}` | `{toml}` |");
        let line = GUIDE
            .lines()
            .find(|line| line.starts_with(&row))
            .unwrap_or_else(|| panic!("no row {row}"));
        let known = !field.own || field.key == Key::DnsSearch;
        assert!(
            line.ends_with(if known { "| yes |" } else { "| no |" }),
            "{line}"
        );
        let starred = if known || field.section == Section::Limits {
            ""
        } else {
            " \" *\""
        };
        let entry = format!("\n.BR {toml} \", \" {conf}{starred}\n");
        assert!(MANUAL.contains(&entry), "no entry {entry:?}");
    }
}

fn conf_name(field: &Field) -> &'static str {
    if field.key == Key::DnsSearch {
        "DNS"
    } else {
        field.name(Format::Conf)
    }
}
