//! Rings between two processes: one producer, one consumer, records in slots of a fixed size.

/// The ring has no room; the record was dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct Full;

/// What the other side wrote makes no sense; the ring gives nothing more until it is attached anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is quarantined: its producer wrote an impossible {what}")]
pub struct Quarantined {
    /// What was impossible.
    pub what: &'static str,
}

/// The writing end.
#[derive(Debug)]
pub struct Producer {}

impl Producer {
    /// Puts a record, made of the parts one after the other, behind the last one. The consumer sees it after
    /// [`publish`](Self::publish).
    pub fn push(&mut self, kind: u16, parts: &[&[u8]]) -> Result<(), Full> {
        let _ = (kind, parts);
        todo!()
    }

    /// Shows what was pushed to the consumer; true: the consumer sleeps, ring its doorbell.
    #[must_use = "a sleeping consumer needs its doorbell rung"]
    pub fn publish(&mut self) -> bool {
        todo!()
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer {}

impl Consumer {
    /// Gives the next record's kind and bytes to `f`; `None`: the ring is empty.
    pub fn pop_into<R>(&mut self, f: impl FnOnce(u16, &[u8]) -> R) -> Result<Option<R>, Quarantined> {
        let _ = f;
        todo!()
    }

    /// Gives the room of what was popped back to the producer: once a batch.
    pub fn release(&mut self) {
        todo!()
    }

    /// Whether nothing waits. Looks at the producer's index afresh, so it may stand between
    /// [`about_to_sleep`](crate::process::ProcessSlot::about_to_sleep) and the sleep.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
