//! The error queue of a UDP socket.
//!
//! ip(7), IP_RECVERR: "all generated errors will be queued in a per-socket error queue. When the
//! user receives an error from a socket operation, the errors can be received by calling
//! recvmsg(2) with the MSG_ERRQUEUE flag set. … The original destination address of the datagram
//! that caused the error is supplied via msg_name."

use super::address::Name;
use super::cmsg;
use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One queued error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuedError {
    /// The errno.
    pub(crate) errno: i32,
    /// It came from the network (ICMP), for some datagram sent before, and the next call on the
    /// socket is answered with it. Else it is the kernel's own, for the call that just failed.
    pub(crate) icmp: bool,
    /// For EMSGSIZE the path's MTU, in bytes of the outer packet.
    pub(crate) info: u32,
    /// Where the datagram was bound for.
    pub(crate) destination: Option<SocketAddr>,
}

/// Room for a sock_extended_err, the offender's address and their headers.
const CONTROL: usize = 512;

#[repr(C, align(8))]
struct Buffer([u8; CONTROL]);

/// Takes the oldest error off the queue; `None` when it is empty.
pub(crate) fn take(fd: BorrowedFd<'_>) -> io::Result<Option<QueuedError>> {
    let mut name = Name::empty();
    let mut control = Buffer([0; CONTROL]);
    // SAFETY: a msghdr of zero bytes is valid: null pointers with zero lengths.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = Name::LENGTH;
    header.msg_control = (&raw mut control.0).cast();
    header.msg_controllen = CONTROL;
    // SAFETY: name and control are valid for writes of the lengths given, and live to the end of
    // the function; there is no iovec, so that the datagram's own bytes are not copied.
    let result = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut header,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    let mut found = QueuedError {
        errno: 0,
        icmp: false,
        info: 0,
        destination: name.get(header.msg_namelen),
    };
    let length = header.msg_controllen.min(CONTROL);
    cmsg::each(&control.0[..length], |level, kind, data| {
        let wanted = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        // struct sock_extended_err { u32 errno; u8 origin, type, code, pad; u32 info, data; }
        if wanted && data.len() >= 16 {
            found.errno = i32::from_ne_bytes([data[0], data[1], data[2], data[3]]);
            found.icmp = matches!(data[4], libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            found.info = u32::from_ne_bytes([data[8], data[9], data[10], data[11]]);
        }
    });
    Ok(Some(found))
}
