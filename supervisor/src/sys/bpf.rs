//! Loading and attaching the steering programs (linux/bpf.h, linux/filter.h).

use nix::libc::{self, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction of classic BPF: `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Classic {
    /// The operation.
    pub(crate) code: u16,
    /// Instructions to skip when a comparison is true.
    pub(crate) jump_true: u8,
    /// Instructions to skip when it is false.
    pub(crate) jump_false: u8,
    /// The constant.
    pub(crate) k: u32,
}

/// One instruction of extended BPF: `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extended {
    /// The operation.
    pub(crate) code: u8,
    /// Destination register in the low half, source register in the high half.
    pub(crate) registers: u8,
    /// Jump or memory offset.
    pub(crate) offset: i16,
    /// The constant.
    pub(crate) immediate: i32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct ClassicProgram {
    length: u16,
    instructions: *const Classic,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD needs; the kernel takes a shorter one.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;

/// Loads a socket filter.
pub(crate) fn load(program: &[Extended]) -> io::Result<OwnedFd> {
    let licence = c"Dual MIT/GPL";
    let attributes = LoadAttributes {
        kind: BPF_PROG_TYPE_SOCKET_FILTER,
        count: u32::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: program.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        ..LoadAttributes::default()
    };
    // SAFETY: `attributes` has the size that is passed, and its pointers are to `program` and
    // `licence`, which outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            c_long::from(BPF_PROG_LOAD),
            &raw const attributes,
            size_of::<LoadAttributes>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Lets a classic program choose the socket of a `SO_REUSEPORT` group, to which `member` belongs.
pub(crate) fn attach_group(member: BorrowedFd<'_>, program: &[Classic]) -> io::Result<()> {
    let program = ClassicProgram {
        length: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: program.as_ptr(),
    };
    // SAFETY: the option reads one sock_fprog and as many instructions as it says; both outlive
    // the call.
    let result = unsafe {
        libc::setsockopt(
            member.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            size_of::<ClassicProgram>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
