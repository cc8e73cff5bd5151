//! Public keys that force a known shared secret.
