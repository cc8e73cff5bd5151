//! The one place where messages between processes become bytes.
