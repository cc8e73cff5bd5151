//! Messages between the tools and the supervisor.
