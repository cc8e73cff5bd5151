//! The numbers that name things in shared memory, each with a type of its own.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A shard: one TUN queue and the UDP sockets of the same number.
    ShardId(u8)
);
id!(
    /// A worker's place. A worker that replaces a dead one takes its slot.
    WorkerSlot(u8)
);
id!(
    /// A peer's place in the tables. Reused only after every worker has passed the epoch of its removal.
    PeerSlot(u32)
);
id!(
    /// A lane's place in the key and lane tables; the low bits of its receiver index.
    LaneSlot(u32)
);
