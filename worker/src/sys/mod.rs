//! Every raw system call of the worker, and nothing else.
//!
//! Called by `event`, `udp`, `control` and `aead`; each function quotes the part of the man page
//! that it relies on. No other module of this crate has `unsafe`.

#![allow(unsafe_code)]

mod address;
pub(crate) mod cmsg;
pub(crate) mod epoll;
pub(crate) mod errqueue;
pub(crate) mod mmsg;
pub(crate) mod scm;
pub(crate) mod scrub;
pub(crate) mod simd;
pub(crate) mod sockopt;
