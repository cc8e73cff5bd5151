//! The core without processes.
