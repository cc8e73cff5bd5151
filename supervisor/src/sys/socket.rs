//! Socket options that are plain numbers or lists of them.

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

/// The supplementary groups of the process that connected this UNIX stream.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    // linux/limits.h, NGROUPS_MAX: whoever has more is refused a login.
    const MOST: usize = 65536;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the pointer and the length are those of `groups`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast::<c_void>(),
                &raw mut length,
            )
        };
        if result == 0 {
            groups.truncate(length as usize / size_of::<libc::gid_t>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= MOST {
            return Err(error);
        }
        groups.resize(MOST, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_groups_of_a_peer_are_its_own() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own: Vec<u32> = nix::unistd::getgroups()
            .unwrap()
            .iter()
            .map(|group| group.as_raw())
            .collect();
        assert_eq!(peer_groups(one.as_fd()).unwrap(), own);
    }
}
