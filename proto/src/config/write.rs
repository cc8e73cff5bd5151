//! Writes a configuration in either format, so that reading gives the same again.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use super::field::{Arity, FIELDS, Field, Format, Key, Section};
use super::{Config, Interface, Limits, Peer, Table};

/// Why a configuration cannot be written in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} cannot be written to a .conf file: {value:?}: {remedy}")]
pub struct WriteError {
    key: &'static str,
    value: String,
    remedy: &'static str,
}

/// The text of a wg-quick file, as `SaveConfig` writes it; peers' names become comments, which wg-quick keeps.
///
/// Fails on a command or device with `#` or a line break in it, which this format cannot hold.
pub fn write_conf(config: &Config) -> Result<Zeroizing<String>, WriteError> {
    let mut text = Secret::default();
    text.push("[Interface]\n");
    for field in section(Section::Interface) {
        conf_lines(
            &mut text,
            field,
            interface_values(&config.interface, field.key),
        )?;
    }
    let limits = limit_values(config.interface.limits);
    if !limits.is_empty() {
        text.push("\n[Limits]\n");
        for (field, value) in limits {
            conf_lines(&mut text, field, vec![value])?;
        }
    }
    for peer in &config.peers {
        text.push("\n[Peer]\n");
        for field in section(Section::Peer) {
            conf_lines(&mut text, field, peer_values(peer, field.key))?;
        }
    }
    Ok(text.0)
}

/// The text of a TOML file.
pub fn write_toml(config: &Config) -> Zeroizing<String> {
    let mut text = Secret::default();
    text.push("[interface]\n");
    for field in section(Section::Interface) {
        toml_line(
            &mut text,
            field,
            &interface_values(&config.interface, field.key),
        );
    }
    let limits = limit_values(config.interface.limits);
    if !limits.is_empty() {
        text.push("\n[limits]\n");
        for (field, value) in limits {
            toml_line(&mut text, field, &[value]);
        }
    }
    for peer in &config.peers {
        text.push("\n[[peer]]\n");
        for field in section(Section::Peer) {
            toml_line(&mut text, field, &peer_values(peer, field.key));
        }
    }
    text.0
}

fn section(section: Section) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.section == section)
}

/// A value on its way into a file.
pub(super) enum Value {
    Text(Zeroizing<String>),
    Number(u64),
    True,
}

fn text(value: impl std::fmt::Display) -> Value {
    Value::Text(Zeroizing::new(value.to_string()))
}

fn texts<T: std::fmt::Display>(values: &[T]) -> Vec<Value> {
    values.iter().map(text).collect()
}

fn one<T>(value: Option<T>, write: impl FnOnce(T) -> Value) -> Vec<Value> {
    value.map(write).into_iter().collect()
}

fn number(value: impl Into<u64>) -> Value {
    Value::Number(value.into())
}

/// What a key of the interface is set to; nothing where that is the default.
pub(super) fn interface_values(interface: &Interface, key: Key) -> Vec<Value> {
    match key {
        Key::PrivateKey => one(interface.private_key.as_ref(), |key| {
            Value::Text(key.to_base64())
        }),
        Key::ListenPort => one(interface.listen_port, number),
        Key::FwMark => one(interface.fwmark.filter(|mark| *mark != 0), number),
        Key::Address => texts(&interface.addresses),
        Key::Dns => texts(&interface.dns),
        Key::DnsSearch => texts(&interface.dns_search),
        Key::Mtu => one(interface.mtu, number),
        Key::Table => match interface.table {
            Table::Auto => Vec::new(),
            Table::Off => vec![text("off")],
            Table::Number(table) => vec![number(table)],
        },
        Key::PreUp => texts(&interface.pre_up),
        Key::PostUp => texts(&interface.post_up),
        Key::PreDown => texts(&interface.pre_down),
        Key::PostDown => texts(&interface.post_down),
        Key::SaveConfig => one(interface.save_config.then_some(Value::True), |value| value),
        Key::ListenAddress => texts(&interface.listen_addresses),
        Key::BindDevice => one(interface.bind_device.as_ref(), text),
        Key::Workers => one(interface.workers, |workers| match workers {
            super::WorkersSetting::Auto => text("auto"),
            super::WorkersSetting::Count(count) => number(count),
        }),
        Key::Shards => one(interface.shards, number),
        Key::Cpus => one(interface.cpus.as_ref(), text),
        Key::Poll => one(interface.poll, text),
        _ => Vec::new(),
    }
}

fn limit_values(limits: Limits) -> Vec<(&'static Field, Value)> {
    let default = Limits::default();
    section(Section::Limits)
        .filter_map(|field| {
            let (value, usual) = match field.key {
                Key::Peers => (limits.peers, default.peers),
                _ => (limits.routes, default.routes),
            };
            (value != usual).then(|| (field, number(value)))
        })
        .collect()
}

pub(super) fn peer_values(peer: &Peer, key: Key) -> Vec<Value> {
    match key {
        Key::Name => one(peer.name.as_ref(), text),
        Key::PublicKey => vec![text(peer.public_key)],
        Key::PresharedKey => one(peer.preshared_key.as_ref(), |key| {
            Value::Text(key.to_base64())
        }),
        Key::AllowedIps => texts(&peer.allowed_ips),
        Key::Endpoint => one(peer.endpoint.as_ref(), text),
        Key::PersistentKeepalive => one(
            peer.persistent_keepalive.filter(|seconds| *seconds != 0),
            number,
        ),
        Key::PeerUp => one(peer.peer_up.as_ref(), text),
        Key::PeerDown => one(peer.peer_down.as_ref(), text),
        _ => Vec::new(),
    }
}

fn conf_lines(out: &mut Secret, field: &Field, values: Vec<Value>) -> Result<(), WriteError> {
    let name = match field.key {
        Key::Name => "# Name",
        Key::DnsSearch => "DNS",
        _ => field.name(Format::Conf),
    };
    if field.key == Key::AllowedIps && !values.is_empty() {
        out.push(name);
        for (index, value) in values.iter().enumerate() {
            out.push(if index == 0 { " = " } else { ", " });
            out.push(&plain(value));
        }
        out.push("\n");
        return Ok(());
    }
    for value in values {
        let value = plain(&value);
        let comment = value.contains('#') && field.key != Key::Name;
        if comment
            || value.contains(['\n', '\r', '\0'])
            || value.trim() != value.as_str()
            || value.is_empty()
        {
            return Err(WriteError {
                key: if field.key == Key::Name { "Name" } else { name },
                value: value.to_string(),
                remedy: "use a .toml file, or put the command into a script",
            });
        }
        out.push(name);
        out.push(" = ");
        out.push(&value);
        out.push("\n");
    }
    Ok(())
}

fn plain(value: &Value) -> Zeroizing<String> {
    match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => Zeroizing::new(number.to_string()),
        Value::True => Zeroizing::new("true".to_owned()),
    }
}

fn toml_line(out: &mut Secret, field: &Field, values: &[Value]) {
    if values.is_empty() {
        return;
    }
    out.push(field.name(Format::Toml));
    out.push(" = ");
    let list = matches!(field.arity, Arity::Many | Arity::Lines);
    if list {
        out.push("[");
    }
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(", ");
        }
        match value {
            Value::Text(text) => out.push(&quoted(text)),
            other => out.push(&plain(other)),
        }
    }
    out.push(if list { "]\n" } else { "\n" });
}

/// A basic string of TOML.
fn quoted(text: &str) -> Zeroizing<String> {
    let mut quoted = Zeroizing::new(String::with_capacity(6 * text.len() + 2));
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Text that holds keys: when it must grow, what it leaves is wiped.
#[derive(Default)]
struct Secret(Zeroizing<String>);

impl Secret {
    fn push(&mut self, text: &str) {
        if self.0.capacity() - self.0.len() < text.len() {
            let room = (2 * self.0.capacity())
                .max(self.0.len() + text.len())
                .max(4096);
            let mut larger = Zeroizing::new(String::with_capacity(room));
            larger.push_str(&self.0);
            self.0 = larger;
        }
        self.0.push_str(text);
    }
}

#[cfg(test)]
mod tests;
