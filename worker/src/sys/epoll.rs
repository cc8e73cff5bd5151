//! epoll(7).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// One registration's report: epoll's bits and the caller's 64-bit datum.
pub(crate) type Report = libc::epoll_event;

/// epoll_create1(2): "returns a file descriptor referring to the new epoll instance".
pub(crate) fn create() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave us a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What epoll_ctl(2) is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Add,
    Modify,
    Delete,
}

/// epoll_ctl(2): "add, modify, or remove entries in the interest list".
pub(crate) fn control(
    epoll: BorrowedFd<'_>,
    what: Control,
    fd: BorrowedFd<'_>,
    bits: u32,
    datum: u64,
) -> io::Result<()> {
    let operation = match what {
        Control::Add => libc::EPOLL_CTL_ADD,
        Control::Modify => libc::EPOLL_CTL_MOD,
        Control::Delete => libc::EPOLL_CTL_DEL,
    };
    let mut event = libc::epoll_event {
        events: bits,
        u64: datum,
    };
    // SAFETY: both descriptors are open for the length of the call, and `event` is a valid
    // epoll_event that the kernel only reads.
    let result =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// epoll_pwait2(2): "takes a timeout of type timespec … NULL: block indefinitely"; returns how
/// many of `reports` were filled. Kernels before 5.11 get epoll_wait(2) with whole milliseconds,
/// rounded up so that a short wait does not become a spin.
pub(crate) fn wait(
    epoll: BorrowedFd<'_>,
    reports: &mut [Report],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let room = reports.len().min(i32::MAX as usize) as i32;
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    });
    let limit_pointer = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `reports` is valid for writes of `room` events, the timespec lives to the end of
    // the function, and a null signal mask (of size 0) leaves the mask alone.
    let mut count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            reports.as_mut_ptr(),
            room,
            limit_pointer,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        let milliseconds = timeout.map_or(-1, |timeout| {
            timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32
        });
        // SAFETY: as above.
        count = i64::from(unsafe {
            libc::epoll_wait(epoll.as_raw_fd(), reports.as_mut_ptr(), room, milliseconds)
        });
    }
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(count as usize)
}
