//! Socket options that are plain numbers, and names.

use nix::libc::{self, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option whose value is an `int`.
pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
