//! The configuration of a gateway, whichever file format it came in.
