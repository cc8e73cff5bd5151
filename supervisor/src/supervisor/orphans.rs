//! As process 1 of a container the supervisor inherits every process whose parent ended, and
//! nobody else reaps those.

use super::Supervisor;
use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// Orphans reaped in one turn; what is left waits for the next.
const A_TURN: usize = 64;

impl Supervisor<'_> {
    /// Reaps what ended and is no child of ours.
    ///
    /// Looks before it takes: a child's status must be left to whoever waits for it.
    pub(super) fn reap_orphans(&self) {
        if std::process::id() != 1 {
            return;
        }
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        for _ in 0..A_TURN {
            let pid = match waitid(Id::All, look) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
                Err(Errno::EINTR) => continue,
                _ => return,
            };
            // It is first in line until it is reaped, which happens in this turn or the next.
            if self.is_ours(pid) {
                return;
            }
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }

    fn is_ours(&self, pid: Pid) -> bool {
        let pid = pid.as_raw() as u32;
        self.children.iter().any(|child| child.pid() == pid)
            || self.change.as_ref().and_then(super::change::Change::pid) == Some(pid)
            || self.job == Some(pid)
    }
}
