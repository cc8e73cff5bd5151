//! The core without processes: real segments, and `ringway_proto` as the other end.

mod configuration;
mod exchange;
mod load;
mod rig;
mod slots;
mod uapi_server;
mod way;
mod wish;
