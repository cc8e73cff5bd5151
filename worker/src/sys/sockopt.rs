//! The socket options that a worker changes while it runs.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// ip(7), IP_MTU_DISCOVER (ipv6(7), IPV6_MTU_DISCOVER): "IP_PMTUDISC_WANT will fragment a
/// datagram if needed according to the path MTU, or will set the don't-fragment flag otherwise";
/// IP_PMTUDISC_DO: "the don't-fragment flag is set on all outgoing packets".
pub(crate) fn allow_fragments(fd: BorrowedFd<'_>, v6: bool, allowed: bool) -> io::Result<()> {
    let (level, option, value) = match (v6, allowed) {
        (false, true) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_WANT,
        ),
        (false, false) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        (true, true) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_WANT,
        ),
        (true, false) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    set(fd, level, option, value)
}

/// udp(7), UDP_GRO: "the kernel merges datagrams of one flow"; each receive call then tells how
/// long they are.
pub(crate) fn merge_received(fd: BorrowedFd<'_>, merged: bool) -> io::Result<()> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, merged.into())
}

fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: setsockopt(2) reads `size_of::<c_int>()` bytes from a c_int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
