//! A whole worker in process.
