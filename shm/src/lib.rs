//! Ringway's shared memory: sealed segments, rings between processes, and the tables that they read together.
//!
//! The supervisor creates the [`segment`]s; meta, the workers and the tools attach to them and take the views they
//! need: [`State`](state::State), [`Keys`](keys::Keys), [`Lanes`](lanes::Lanes), [`Rings`](rings::Rings). A view is
//! a cheap clone that keeps its mapping alive. Everything in a segment is an atomic word with one writer; nothing
//! read from a segment is trusted: a bad index, length or offset from another process gives an error or `None`,
//! never a panic and never an access outside the mapping.
//!
//! All `unsafe` code of the data structures lives in this crate.

pub mod counters;
pub mod doorbell;
pub mod epoch;
pub mod ids;
pub mod keys;
pub mod lanes;
pub mod layout;
pub mod messages;
#[cfg(all(test, loom))]
mod models;
pub mod process;
pub mod ring;
pub mod rings;
pub mod routes;
pub mod segment;
pub mod seqlock;
pub mod state;
pub mod sync;
