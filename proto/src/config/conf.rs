//! Reads the format of wg-quick.
//!
//! As there, keys ignore case, `#` begins a comment wherever it stands, and of a repeated single value the last
//! counts. Beyond it, a comment `# Name = x` names the peer it stands in, or the peer right below it when a
//! blank line parts it from what is above.

use std::path::Path;

use super::builder::Builder;
use super::error::Fault;
use super::field::{Arity, Field, Format, Section, nearest};
use super::{ConfigError, Loaded};

/// Reads the text of a wg-quick file; `file` is its name in messages.
pub fn parse_conf(text: &str, file: &Path) -> Result<Loaded, ConfigError> {
    let mut reader = Reader {
        file,
        builder: Builder::new(file, Format::Conf),
        section: None,
        given: Vec::new(),
        after_blank: true,
        floating: None,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        reader.line(line, index + 1)?;
    }
    reader.settle_name();
    reader.builder.finish()
}

struct Reader<'a> {
    file: &'a Path,
    builder: Builder<'a>,
    section: Option<Section>,
    /// The single values that this section has had.
    given: Vec<&'static str>,
    after_blank: bool,
    /// A name in a comment that belongs to the next line's peer, if that begins one, else to this one.
    floating: Option<(String, usize)>,
}

impl Reader<'_> {
    fn line(&mut self, line: &str, number: usize) -> Result<(), ConfigError> {
        let (content, comment) = line.split_once('#').unwrap_or((line, ""));
        let content = content.trim();
        if content.starts_with('[') {
            return self.header(content, number);
        }
        if !content.is_empty() {
            self.settle_name();
            self.after_blank = false;
            return self.assignment(content, number);
        }
        if line.trim().is_empty() {
            self.settle_name();
            self.after_blank = true;
        } else if let Some(name) = name_in(comment) {
            self.settle_name();
            self.floating = Some((name.to_owned(), number));
            if self.section == Some(Section::Peer) && !self.after_blank {
                self.settle_name();
            }
        }
        Ok(())
    }

    fn header(&mut self, content: &str, number: usize) -> Result<(), ConfigError> {
        let known = [Section::Interface, Section::Peer, Section::Limits];
        let plain: String = content.split_whitespace().collect();
        let found = known
            .into_iter()
            .find(|section| Format::Conf.header(*section).eq_ignore_ascii_case(&plain));
        let Some(section) = found else {
            let headers = known.map(|section| Format::Conf.header(section));
            let remedy = match nearest(content, headers.into_iter()) {
                Some(header) => format!("did you mean {header}?"),
                None => "only [Interface], [Peer] and [Limits] are known".to_owned(),
            };
            return Err(Fault::new("unknown section", remedy)
                .value(content)
                .at(self.file, number));
        };
        if section != Section::Peer {
            self.settle_name();
        }
        self.given.clear();
        self.section = Some(section);
        if section == Section::Peer {
            self.builder.begin_peer(number);
            self.settle_name();
        }
        self.after_blank = false;
        Ok(())
    }

    fn assignment(&mut self, content: &str, number: usize) -> Result<(), ConfigError> {
        let Some((name, value)) = content.split_once('=') else {
            // The line may be a key that lost its name, so it is not shown.
            return Err(
                Fault::new("line without an equals sign", "write Key = value")
                    .at(self.file, number),
            );
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(section) = self.section else {
            return Err(Fault::new(
                "key before the first section",
                "begin the file with [Interface]",
            )
            .value(harmless(name))
            .at(self.file, number));
        };
        let Some(field) = Format::Conf.field(section, name) else {
            let what = format!("unknown key below {}", Format::Conf.header(section));
            let remedy = Format::Conf.remedy(section, name);
            return Err(Fault::new(what, remedy)
                .value(harmless(name))
                .at(self.file, number));
        };
        self.values(field, value, number)
    }

    fn values(
        &mut self,
        field: &'static Field,
        value: &str,
        number: usize,
    ) -> Result<(), ConfigError> {
        match field.arity {
            Arity::Many => {
                let parts = value
                    .split(|c: char| c == ',' || c.is_whitespace())
                    .filter(|part| !part.is_empty());
                for part in parts {
                    self.builder.set(field, part, number)?;
                }
                Ok(())
            }
            Arity::Lines => self.builder.set(field, value, number),
            Arity::One | Arity::Joined => {
                let name = field.name(Format::Conf);
                if self.given.contains(&name) {
                    let fault = Fault::new(
                        "key is there twice",
                        "the last one counts: remove the other",
                    );
                    self.builder.warn(fault.value(name), number);
                }
                self.given.push(name);
                self.builder.set(field, value, number)
            }
        }
    }

    /// Gives a floating name to the peer that is being read.
    fn settle_name(&mut self) {
        if let Some((name, line)) = self.floating.take() {
            if self.section == Some(Section::Peer) {
                self.builder.comment_name(&name, line);
            }
        }
    }
}

/// The value of a comment ` Name = value`.
fn name_in(comment: &str) -> Option<&str> {
    let (key, value) = comment.split_once('=')?;
    key.trim()
        .eq_ignore_ascii_case("name")
        .then_some(value.trim())
}

/// A key's name as a message may show it: what is no word may be a secret.
pub(super) fn harmless(name: &str) -> &str {
    let word = name.len() <= 32
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_- ".contains(&byte));
    if word && !name.is_empty() {
        name
    } else {
        "(not shown)"
    }
}

#[cfg(test)]
mod tests;
