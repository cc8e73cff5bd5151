//! Super-packets: what the kernel merges and splits for us where both sides know how.
//!
//! The TUN interface hands over up to 64 KiB of one flow at once (`split` makes the packets of
//! it that the tunnel carries) and takes as much (`coalesce` merges the packets that came in a
//! row). Nothing here reads or writes a descriptor; bytes in, bytes out.

pub mod checksum;
pub mod headers;
#[cfg(test)]
pub(crate) mod packets;
pub mod split;
pub mod vnet;
