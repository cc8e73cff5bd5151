//! TUN queues: opening and setting them up (Documentation/networking/tuntap.rst, linux/if_tun.h).

use nix::libc::{self, c_int, c_short, c_ulong};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const TUNSETIFF: c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: c_ulong = 0x4004_54d8;
const TUNSETSTEERINGEBPF: c_ulong = 0x8004_54e0;
const TUNGETDEVNETNS: c_ulong = 0x54e3;
const TUNGETIFF: c_ulong = 0x8004_54d2;

/// TUN_F_CSUM: packets whose transport checksum is left to do.
pub(crate) const CSUM: c_ulong = 0x01;
/// TUN_F_TSO4: super-packets of TCP over IPv4.
pub(crate) const TSO4: c_ulong = 0x02;
/// TUN_F_TSO6: super-packets of TCP over IPv6.
pub(crate) const TSO6: c_ulong = 0x04;
/// TUN_F_TSO_ECN: also those whose first segment has CWR set.
pub(crate) const TSO_ECN: c_ulong = 0x08;
/// TUN_F_USO4: super-packets of UDP over IPv4. The kernel takes it with [`USO6`] only.
pub(crate) const USO4: c_ulong = 0x20;
/// TUN_F_USO6: super-packets of UDP over IPv6.
pub(crate) const USO6: c_ulong = 0x40;

const IFF_TUN: c_short = 0x0001;
const IFF_MULTI_QUEUE: c_short = 0x0100;
const IFF_NO_PI: c_short = 0x1000;
const IFF_VNET_HDR: c_short = 0x4000;
const IFF_TUN_EXCL: c_short = 0x8000_u16 as c_short;

/// `struct ifreq` as the TUN calls use it: a name, flags, and room up to its 40 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: c_short,
    rest: [u8; 22],
}

/// Opens one queue of the interface, the first of which makes it.
///
/// With `exclusive` an interface of this name that exists already is `EBUSY`.
pub(crate) fn open_queue(name: &str, exclusive: bool) -> io::Result<OwnedFd> {
    let path = CString::new("/dev/net/tun")?;
    // SAFETY: the path is a terminated string; the result is checked before it is owned.
    let fd = unsafe {
        libc::open(
            path.as_ptr(),
            libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `open` has just made this descriptor for us.
    let queue = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE,
        rest: [0; 22],
    };
    if exclusive {
        request.flags |= IFF_TUN_EXCL;
    }
    if name.len() >= request.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` has the size of.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETIFF, &raw mut request) };
    check(result)?;
    Ok(queue)
}

/// Sets the length of the header before every packet.
pub(crate) fn set_header_length(queue: BorrowedFd<'_>, length: c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETVNETHDRSZ, &raw const length) })
}

/// Says which offloads the reader of the queues takes (`TUN_F_*`).
pub(crate) fn set_offloads(queue: BorrowedFd<'_>, offloads: c_ulong) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETOFFLOAD, offloads) })
}

/// Lets a loaded program choose the queue of every packet.
pub(crate) fn set_steering(queue: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program: c_int = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETSTEERINGEBPF, &raw const program) })
}

/// The interface's name of today; `EBADFD` when it was deleted.
pub(crate) fn name(queue: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: 0,
        rest: [0; 22],
    };
    // SAFETY: TUNGETIFF writes one ifreq, which `request` has the size of.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNGETIFF, &raw mut request) })?;
    let length = request
        .name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(request.name.len());
    Ok(String::from_utf8_lossy(&request.name[..length]).into_owned())
}

/// The network namespace that the interface is in; `EBADFD` when it was deleted.
pub(crate) fn namespace(queue: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: TUNGETDEVNETNS takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(queue.as_raw_fd(), TUNGETDEVNETNS) };
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec, fs/nsfs.c).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
