//! The two things of nf_tables that the `nftnl` crate does not wrap: a table with the owner flag, and the `fib`
//! expression.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use nftnl::{MsgType, NlMsg, Rule, expr::Expression};
use nftnl_sys as raw;
use raw::libc;

/// `NFT_TABLE_F_OWNER` (linux/netfilter/nf_tables.h, since 5.12): only the socket that made the table may change it,
/// and the kernel removes it when that socket is closed, however the process ends.
const NFT_TABLE_F_OWNER: u32 = 0x2;
const NFTA_FIB_F_SADDR: u32 = 1;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;

/// The message that makes a table which goes with the socket it was made through.
pub(crate) struct OwnedTable<'a> {
    /// The table's name.
    pub(crate) name: &'a CStr,
    /// Its family; `ProtoFamily::Inet` for both IP versions.
    pub(crate) family: nftnl::ProtoFamily,
}

// SAFETY: what `write` puts down is one table message with a name of at most 255 bytes and two numbers, far below
// the largest netlink message.
unsafe impl NlMsg for OwnedTable<'_> {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, msg_type: MsgType) {
        let kind = match msg_type {
            MsgType::Add => libc::NFT_MSG_NEWTABLE,
            MsgType::Del => libc::NFT_MSG_DELTABLE,
        };
        // SAFETY: allocation of a plain object; checked below.
        let Some(table) = NonNull::new(unsafe { raw::nftnl_table_alloc() }) else {
            std::process::abort() // out of memory, as Rust's own allocator does
        };
        // SAFETY: `table` is a live object, `name` is NUL-terminated and copied by the library, `buf` has room for
        // the largest message (this trait's contract), and `table` is freed exactly once.
        unsafe {
            let table = table.as_ptr();
            raw::nftnl_table_set_u32(table, raw::NFTNL_TABLE_FAMILY as u16, self.family as u32);
            raw::nftnl_table_set_str(table, raw::NFTNL_TABLE_NAME as u16, self.name.as_ptr());
            raw::nftnl_table_set_u32(table, raw::NFTNL_TABLE_FLAGS as u16, NFT_TABLE_F_OWNER);
            let header = raw::nftnl_nlmsg_build_hdr(
                buf.cast(),
                kind as u16,
                self.family as u16,
                libc::NLM_F_ACK as u16,
                seq,
            );
            raw::nftnl_table_nlmsg_build_payload(header, table);
            raw::nftnl_table_free(table);
        }
    }
}

/// `fib saddr type`: the routing type of the packet's source address, into register 1.
pub(crate) struct FibSourceType;

impl Expression for FibSourceType {
    fn to_expr(&self, _rule: &Rule<'_>) -> NonNull<raw::nftnl_expr> {
        // SAFETY: the name is NUL-terminated; the result is checked.
        let Some(expr) = NonNull::new(unsafe { raw::nftnl_expr_alloc(c"fib".as_ptr()) }) else {
            std::process::abort() // out of memory, or a libnftnl without `fib` (older than 1.0.7)
        };
        // SAFETY: `expr` is a live object of type fib and the attributes are its 32-bit ones.
        unsafe {
            let e = expr.as_ptr();
            raw::nftnl_expr_set_u32(e, raw::NFTNL_EXPR_FIB_DREG as u16, libc::NFT_REG_1 as u32);
            raw::nftnl_expr_set_u32(
                e,
                raw::NFTNL_EXPR_FIB_RESULT as u16,
                NFT_FIB_RESULT_ADDRTYPE,
            );
            raw::nftnl_expr_set_u32(e, raw::NFTNL_EXPR_FIB_FLAGS as u16, NFTA_FIB_F_SADDR);
        }
        expr
    }
}
