//! What a segment holds and where: the shared types' hash and the table of regions.

/// A type that lives in shared memory.
///
/// # Safety
/// The type is `repr(C)`, made of atomics only (so any bytes are a value and `&T` may be written by others), and has
/// no padding that anybody reads.
pub unsafe trait Shared: Sync {
    /// Hash of the names, types and offsets of the fields.
    const LAYOUT: u64;
}

/// FNV-1a, chained: part of the layout hash.
pub(crate) const fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        state = (state ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    state
}

/// [`hash`] of a number.
pub(crate) const fn hash_number(state: u64, number: usize) -> u64 {
    hash(state, &(number as u64).to_le_bytes())
}

/// Where FNV-1a begins.
pub(crate) const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Defines a type of shared memory: the struct as written, and its layout for the hash in the header.
macro_rules! shared {
    ($(#[$attribute:meta])* pub struct $name:ident { $($(#[$field_attribute:meta])* $visibility:vis $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        pub struct $name { $($(#[$field_attribute])* $visibility $field: $type,)* }

        // SAFETY: the macro is only given `repr(C)` structs whose fields are atomics, arrays of atomics or other
        // shared types; padding is never read.
        unsafe impl $crate::layout::Shared for $name {
            const LAYOUT: u64 = {
                let mut state = $crate::layout::HASH_START;
                state = $crate::layout::hash(state, stringify!($name).as_bytes());
                state = $crate::layout::hash_number(state, size_of::<$name>());
                state = $crate::layout::hash_number(state, align_of::<$name>());
                $(
                    state = $crate::layout::hash(state, stringify!($field).as_bytes());
                    state = $crate::layout::hash(state, stringify!($type).as_bytes());
                    state = $crate::layout::hash_number(state, core::mem::offset_of!($name, $field));
                    state = $crate::layout::hash_number(state, size_of::<$type>());
                )*
                state
            };
        }
    };
}
pub(crate) use shared;
