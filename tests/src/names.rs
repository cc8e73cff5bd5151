//! Names that no other test process uses.

use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// What the names of namespaces begin with; the pid follows.
pub(crate) const NAMESPACE_PREFIX: &str = "rwt-";

fn number() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A namespace's name: `rwt-PID-N`.
pub(crate) fn namespace() -> String {
    format!("{NAMESPACE_PREFIX}{}-{}", std::process::id(), number())
}

/// An interface's name, at most 15 bytes. The sockets of WireGuard's user-space daemons are named after
/// the interface in a directory that all namespaces share.
pub fn interface() -> String {
    format!("rw{:x}t{:x}", std::process::id(), number())
}
