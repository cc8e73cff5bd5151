//! What the loop waits for: each descriptor is watched for what it needs now, and no longer.

use super::super::MetaError;
use super::{CONTROL, DOORBELL, HELPER, Loop};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;

impl Loop {
    pub(super) fn watch(&mut self, what: u64, flags: EpollFlags) -> Result<(), MetaError> {
        let fd = match what {
            CONTROL => self.supervisor.as_fd(),
            DOORBELL => self.doorbell.as_fd(),
            HELPER => self.helper.as_fd(),
            _ => self.server.as_fd(),
        };
        Ok(self.epoll.add(fd, EpollEvent::new(flags, what))?)
    }

    pub(super) fn watch_helper(&mut self) -> Result<(), MetaError> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, self.helper.waits());
        if self.helper.has_ended() {
            flags = EpollFlags::empty();
        }
        if flags != self.helper_watched {
            if flags.is_empty() {
                // Ended: level-triggered, its hang-up would wake us for ever.
                self.epoll.delete(self.helper.as_fd())?;
            } else {
                self.epoll
                    .modify(self.helper.as_fd(), &mut EpollEvent::new(flags, HELPER))?;
            }
            self.helper_watched = flags;
        }
        Ok(())
    }
}
