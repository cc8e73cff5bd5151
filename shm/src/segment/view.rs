//! A typed piece of a mapping that keeps the mapping alive.

use std::{any::Any, fmt, ops::Deref, ptr::NonNull, sync::Arc};

/// A reference into shared memory without a lifetime: it holds what owns the memory.
pub(crate) struct View<T: ?Sized> {
    target: NonNull<T>,
    owner: Arc<dyn Any + Send + Sync>,
}

impl<T: ?Sized> View<T> {
    /// # Safety
    /// `target` is aligned, points to a valid `T`, and stays so, for shared access, as long as `owner` lives.
    pub(super) unsafe fn new(target: NonNull<T>, owner: Arc<dyn Any + Send + Sync>) -> View<T> {
        View { target, owner }
    }
}

impl<T: ?Sized> View<T> {
    /// A view of a part, which keeps the whole alive.
    pub(crate) fn project<U: ?Sized>(
        &self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Option<View<U>> {
        // The signature lets `part` give nothing but what is borrowed from its argument (or lives for ever).
        let target = NonNull::from(part(self)?);
        Some(View {
            target,
            owner: Arc::clone(&self.owner),
        })
    }
}

#[cfg(test)]
impl<T: Send + Sync + 'static> View<T> {
    /// A view of something on the heap, for tests and models, which need no segment.
    pub(crate) fn of(value: Arc<T>) -> View<T> {
        View {
            target: NonNull::from(&*value),
            owner: value,
        }
    }
}

#[cfg(test)]
impl<T: Sync + Send + 'static> View<[T]> {
    /// [`View::of`] for a slice.
    pub(crate) fn of_slice(value: Arc<Vec<T>>) -> View<[T]> {
        View {
            target: NonNull::from(value.as_slice()),
            owner: value,
        }
    }
}

impl<T: ?Sized> Deref for View<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: by the contract of `new`, or because the owner is the value itself (`of`), the target is valid for
        // shared access while the owner lives, and the owner is in `self`.
        unsafe { self.target.as_ref() }
    }
}

impl<T: ?Sized> Clone for View<T> {
    fn clone(&self) -> View<T> {
        View {
            target: self.target,
            owner: Arc::clone(&self.owner),
        }
    }
}

impl<T: ?Sized> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the contents: they may be keys.
        f.debug_struct("View").finish_non_exhaustive()
    }
}

// SAFETY: a view gives nothing but `&T`, and `T: Sync`; the owner is `Send + Sync`.
unsafe impl<T: ?Sized + Sync> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for View<T> {}
