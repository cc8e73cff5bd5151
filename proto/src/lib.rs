//! Ringway's protocol logic, without input or output.
//!
//! Everything here takes bytes and an instant and returns a decision: no
//! descriptor, no clock and no allocation on the data path. The processes
//! (`supervisor`, `worker`, `tools`) live at the rim and call in.
//!
//! - **The handshake**: [`wire`], [`keys`], [`noise`], [`tai64n`], [`low_order`],
//!   [`cookie`] and [`ratelimit`].
//! - **A session's life**: [`time`], [`timers`] and [`replay`].
//! - **The packet inside**: [`inner`], [`ecn`], [`too_big`], [`fragment`] and
//!   [`padding`].
//! - **Being told what to do**: [`config`], [`uapi`], [`control`], [`codec`],
//!   [`endpoint`] and [`prefix`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod codec;
pub mod config;
pub mod control;
pub mod cookie;
pub mod ecn;
pub mod endpoint;
pub mod fragment;
pub mod inner;
pub mod keys;
pub mod low_order;
pub mod noise;
pub mod padding;
pub mod prefix;
pub mod ratelimit;
pub mod replay;
pub mod tai64n;
pub mod time;
pub mod timers;
pub mod too_big;
pub mod uapi;
pub mod wire;
