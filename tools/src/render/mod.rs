//! From figures to what a person reads: units and tables.
//!
//! The models in [`crate::model`] hold the figures; what is here only lays them out, and does no arithmetic
//! that JSON would miss.

pub(crate) mod table;
pub(crate) mod units;
