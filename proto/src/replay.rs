//! The window that accepts each packet counter once.
