//! Instants on the clock that counts during suspend.
