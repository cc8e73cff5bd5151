//! The network side: the groups of sockets and what waits to be sent through them.
//!
//! Called by `path` and the loop. It sends and receives datagrams and knows nothing of keys.

pub(crate) mod group;
pub(crate) mod outbox;
