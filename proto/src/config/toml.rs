//! Reads the TOML format: `[interface]`, `[[peer]]` and `[limits]` with the keys in `snake_case`.

use std::borrow::Cow;
use std::path::Path;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::builder::Builder;
use super::conf::harmless;
use super::error::Fault;
use super::field::{Arity, Field, Format, Section, nearest};
use super::{ConfigError, Loaded};

/// Reads the text of a TOML file; `file` is its name in messages.
pub fn parse_toml(text: &str, file: &Path) -> Result<Loaded, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let places = Places {
        file,
        starts: line_starts(text),
    };
    let document = DeTable::parse(text).map_err(|error| {
        // `message` holds no text of the file, which the whole error would print, keys and all.
        let fault = Fault::new("not TOML", error.message());
        match error.span() {
            Some(span) => places.error(fault, span.start),
            None => fault.of(file),
        }
    })?;
    let mut reader = Reader {
        places: &places,
        builder: Builder::new(file, Format::Toml),
    };
    reader.document(document.get_ref())?;
    reader.builder.finish()
}

/// Turns byte offsets into lines.
struct Places<'a> {
    file: &'a Path,
    starts: Vec<usize>,
}

impl Places<'_> {
    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    fn error(&self, fault: Fault, offset: usize) -> ConfigError {
        fault.at(self.file, self.line(offset))
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect()
}

struct Reader<'a> {
    places: &'a Places<'a>,
    builder: Builder<'a>,
}

impl Reader<'_> {
    fn document(&mut self, document: &DeTable<'_>) -> Result<(), ConfigError> {
        for (name, value) in document {
            match name.get_ref().as_ref() {
                "interface" => {
                    self.section(Section::Interface, self.table(Section::Interface, value)?)?;
                }
                "limits" => self.section(Section::Limits, self.table(Section::Limits, value)?)?,
                "peer" => self.peers(value)?,
                other => {
                    let at = name.span().start;
                    let remedy = match nearest(other, ["interface", "limits", "peer"].into_iter()) {
                        Some("peer") => "did you mean [[peer]]?".to_owned(),
                        Some(known) => format!("did you mean [{known}]?"),
                        None => {
                            "only [interface], [[peer]] and [limits] are known; keys stand below one of them".to_owned()
                        }
                    };
                    return Err(self.places.error(
                        Fault::new("unknown section", remedy).value(harmless(other)),
                        at,
                    ));
                }
            }
        }
        Ok(())
    }

    fn peers(&mut self, value: &Spanned<DeValue<'_>>) -> Result<(), ConfigError> {
        let DeValue::Array(peers) = value.get_ref() else {
            return Err(self.places.error(
                Fault::new("peer is not a list", "begin each peer with [[peer]]"),
                value.span().start,
            ));
        };
        for peer in peers {
            self.builder.begin_peer(self.places.line(peer.span().start));
            self.section(Section::Peer, self.table(Section::Peer, peer)?)?;
        }
        Ok(())
    }

    fn table<'t, 'i>(
        &self,
        section: Section,
        value: &'t Spanned<DeValue<'i>>,
    ) -> Result<&'t DeTable<'i>, ConfigError> {
        if let DeValue::Table(table) = value.get_ref() {
            return Ok(table);
        }
        let header = Format::Toml.header(section);
        let remedy = format!("write {header} on a line of its own, its keys below");
        let fault = Fault::new("not a section", remedy);
        Err(self.places.error(fault, value.span().start))
    }

    fn section(&mut self, section: Section, table: &DeTable<'_>) -> Result<(), ConfigError> {
        for (name, value) in table {
            let Some(field) = Format::Toml.field(section, name.get_ref()) else {
                let what = format!("unknown key below {}", Format::Toml.header(section));
                let fault = Fault::new(what, Format::Toml.remedy(section, name.get_ref()));
                return Err(self
                    .places
                    .error(fault.value(harmless(name.get_ref())), name.span().start));
            };
            self.values(field, value)?;
        }
        Ok(())
    }

    fn values(&mut self, field: &Field, value: &Spanned<DeValue<'_>>) -> Result<(), ConfigError> {
        let DeValue::Array(list) = value.get_ref() else {
            return self.value(field, value);
        };
        match field.arity {
            Arity::Many | Arity::Lines => list.iter().try_for_each(|item| self.value(field, item)),
            Arity::Joined => {
                let parts = list
                    .iter()
                    .map(|item| self.scalar(field, item))
                    .collect::<Result<Vec<_>, _>>()?;
                self.builder.set(
                    field,
                    &parts.join(","),
                    self.places.line(value.span().start),
                )
            }
            Arity::One => {
                let what = format!("bad {}", field.name(Format::Toml));
                Err(self.places.error(
                    Fault::new(what, "give one value, not a list"),
                    value.span().start,
                ))
            }
        }
    }

    fn value(&mut self, field: &Field, value: &Spanned<DeValue<'_>>) -> Result<(), ConfigError> {
        let text = self.scalar(field, value)?;
        let line = self.places.line(value.span().start);
        if field.arity != Arity::Many {
            return self.builder.set(field, text.trim(), line);
        }
        let parts = text
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|part| !part.is_empty());
        for part in parts {
            self.builder.set(field, part, line)?;
        }
        Ok(())
    }

    /// The value as `.conf` would write it.
    fn scalar<'t>(
        &self,
        field: &Field,
        value: &'t Spanned<DeValue<'_>>,
    ) -> Result<Cow<'t, str>, ConfigError> {
        match value.get_ref() {
            DeValue::String(text) => return Ok(Cow::Borrowed(text.as_ref())),
            DeValue::Boolean(value) => {
                return Ok(Cow::Borrowed(if *value { "true" } else { "false" }));
            }
            DeValue::Integer(number) => {
                if let Ok(number) = i64::from_str_radix(number.as_str(), number.radix()) {
                    return Ok(Cow::Owned(number.to_string()));
                }
            }
            _ => {}
        }
        let fault = Fault::new(
            format!("bad {}", field.name(Format::Toml)),
            "give a string, a whole number or true or false",
        );
        Err(self
            .places
            .error(fault.value(value.get_ref().type_str()), value.span().start))
    }
}

#[cfg(test)]
mod tests;
