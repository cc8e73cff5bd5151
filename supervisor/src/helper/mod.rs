//! The process that does slow things for meta: names, files, scripts.

use std::os::fd::OwnedFd;

/// Why the helper had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {}

/// Serves meta's jobs on this stream until it is closed.
///
/// `control` is only watched: end of file means that the supervisor is gone.
pub(crate) fn run(meta: OwnedFd, control: crate::channel::Packets) -> Result<(), HelperError> {
    let _ = (meta, control);
    Ok(())
}
