//! Records under a sequence lock.
