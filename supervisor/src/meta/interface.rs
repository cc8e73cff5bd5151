//! The interface's and the sockets' state, as the supervisor tells it.

use super::core::{Core, Families};
use ringway_shm::messages::Command;

impl Core {
    /// The interface has this MTU and is up or down. Down, a gateway is silent and forgets its
    /// sessions; up, it speaks to those who want to be kept alive (`wg_stop`, `wg_open` of the
    /// kernel).
    pub(crate) fn link(&mut self, mtu: u32, up: bool) {
        let was_up = self.gateway.link_up;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let grew = mtu > std::mem::replace(&mut self.gateway.mtu, mtu);
        self.gateway.link_up = up;
        self.publish_gateway();
        if grew {
            // Whoever raises it has most likely raised that of the links below before.
            for slot in self.peers.slots() {
                self.ask_route(slot);
            }
        }
        if up == was_up {
            return;
        }
        let now = self.now;
        for slot in self.peers.slots() {
            if up {
                let Some(peer) = self.peers.get_mut(slot) else {
                    continue;
                };
                let wanted = std::mem::take(&mut peer.wanted);
                if peer.keepalive != 0 {
                    peer.timers.keepalive_started(now);
                    self.send_keepalive(slot);
                } else if wanted {
                    self.want_session(slot);
                }
            } else {
                self.workers.broadcast(Command::DropStaged { peer: slot });
                if let Some(peer) = self.peers.get_mut(slot) {
                    peer.wanted = false;
                }
                self.drop_sessions(slot);
            }
            self.reschedule(slot);
        }
        if !up {
            while self.queue.pop().is_some() {}
        }
    }

    /// Other sockets are in use.
    pub(crate) fn sockets_changed(&mut self, port: u16, v4: bool, v6: bool) {
        self.families = Families { v4, v6 };
        if self.gateway.listen_port != port {
            self.gateway.listen_port = port;
            self.publish_gateway();
        }
    }

    /// The end: every key is wiped, every peer that was up is told to be down.
    pub(crate) fn shut_down(&mut self) {
        for slot in self.peers.slots() {
            self.drop_sessions(slot);
        }
        self.identity = None;
    }
}
