//! Where the gateway listens and how it marks what it sends: asked of the supervisor, and told only
//! when it is so.

use super::core::Core;
use super::requests::Purpose;
use crate::channel::{Granted, Privileged, Refused};
use ringway_proto::config::Interface;

/// A request to the supervisor, and what is so once it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its number.
    id: u32,
    change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Another port, of the kernel's choice or not.
    Port { automatic: bool },
    /// The firewall mark.
    Mark(u32),
}

impl Asked {
    /// Takes the answer to it; `None`: it is the answer to something else.
    pub(crate) fn answered(
        self,
        core: &mut Core,
        id: u32,
        result: Result<Granted, Refused>,
    ) -> Option<Result<(), Refused>> {
        if self.id != id {
            return None;
        }
        Some(result.map(|granted| match (granted, self.change) {
            (Granted::Listening { port }, Change::Port { automatic }) => {
                core.automatic_port = automatic;
                core.listening(port);
            }
            (_, Change::Mark(mark)) => core.marked(mark),
            _ => {}
        }))
    }
}

impl Core {
    /// Listens on another port. `None`: that is so already.
    pub(super) fn listen(&mut self, purpose: Purpose, port: u16) -> Option<Asked> {
        let same = if port == 0 {
            self.automatic_port
        } else {
            port == self.gateway.listen_port
        };
        if same && self.gateway.listen_port != 0 {
            self.automatic_port &= port == 0;
            return None;
        }
        let interface = &self.config.interface;
        let what = Privileged::Listen {
            port,
            addresses: interface.listen_addresses.clone(),
            device: interface.bind_device.clone(),
            fwmark: self.gateway.fwmark,
        };
        Some(Asked {
            id: self.request(purpose, what),
            change: Change::Port {
                automatic: port == 0,
            },
        })
    }

    /// Listens where the configuration says; where it names no port, on the same one.
    pub(super) fn listen_as(&mut self, purpose: Purpose, interface: &Interface) -> Asked {
        let port = interface.listen_port.filter(|port| *port != 0);
        let what = Privileged::Listen {
            port: port.unwrap_or(self.gateway.listen_port),
            addresses: interface.listen_addresses.clone(),
            device: interface.bind_device.clone(),
            fwmark: self.gateway.fwmark,
        };
        Asked {
            id: self.request(purpose, what),
            change: Change::Port {
                automatic: port.is_none() && self.automatic_port,
            },
        }
    }

    /// Another port is listened on.
    pub(super) fn listening(&mut self, port: u16) {
        self.gateway.listen_port = port;
        self.publish_gateway();
        self.forget_locals();
    }

    /// Marks what is sent. `None`: that is so already.
    pub(super) fn set_fwmark(&mut self, purpose: Purpose, mark: u32) -> Option<Asked> {
        (mark != self.gateway.fwmark).then(|| Asked {
            id: self.request(purpose, Privileged::Fwmark(mark)),
            change: Change::Mark(mark),
        })
    }

    /// What is sent is marked like this now.
    pub(super) fn marked(&mut self, mark: u32) {
        self.gateway.fwmark = mark;
        self.publish_gateway();
        self.forget_locals();
    }
}
