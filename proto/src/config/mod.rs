//! The configuration of a gateway: one model, read from a wg-quick `.conf` or from TOML.
//!
//! Both readers feed the same table of keys (`field.rs`), so a value means the same and a mistake is told with
//! the same words in either format. Called by the supervisor at start and by the helper for meta; it never
//! resolves a name and never runs a hook.

mod builder;
mod check;
mod conf;
mod cpus;
#[cfg(test)]
mod documented;
mod error;
mod field;
mod load;
mod model;
mod save;
mod toml;
mod value;
mod write;

pub use check::{Check, check};
pub use conf::parse_conf;
pub use cpus::{CpuList, CpuListError};
pub use error::{ConfigError, Warning};
pub use load::{
    Loaded, MAX_FILE_BYTES, interface_name, load, load_with_warnings, parse, valid_interface_name,
};
pub use model::{
    BadWorkers, Config, Interface, Limits, MAX_NAME_BYTES, MAX_SHARDS, Peer, PollMode, Table,
    UnknownPollMode, WorkersSetting,
};
pub use save::Runtime;
pub use toml::parse_toml;
pub use write::{WriteError, write_conf, write_toml};
