//! Keys: parsed, printed and forgotten.
