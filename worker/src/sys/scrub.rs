//! Values that leave no trace: key schedules of libraries that don't erase their own.

use std::mem::{MaybeUninit, needs_drop};
use std::ops::Deref;
use zeroize::Zeroize;

/// A plain value on the heap whose bytes are overwritten when it goes.
///
/// Only for types without a destructor and without pointers to more of the secret; the first is
/// checked at compile time. The moves into the box may leave copies on the stack, which the next
/// calls overwrite.
pub(crate) struct Scrubbed<T>(Box<MaybeUninit<T>>);

impl<T> Scrubbed<T> {
    const PLAIN: () = assert!(!needs_drop::<T>(), "only values without a destructor");

    pub(crate) fn new(value: T) -> Scrubbed<T> {
        let () = Self::PLAIN;
        Scrubbed(Box::new(MaybeUninit::new(value)))
    }
}

impl<T> Deref for Scrubbed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` initialised the value, and only `drop` undoes that.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> Drop for Scrubbed<T> {
    fn drop(&mut self) {
        // `zeroize` writes all bytes of a MaybeUninit with volatile stores that the compiler must
        // keep; the value has no destructor that would look at them afterwards.
        self.0.as_mut().zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_the_value_that_went_in() {
        let scrubbed = Scrubbed::new([7u8; 32]);
        assert_eq!(*scrubbed, [7; 32]);
    }
}
