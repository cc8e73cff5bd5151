//! What the supervisor asks of the kernel's network configuration: rtnetlink, synchronously.
//!
//! [`Rtnetlink`] is the conversation; `link`, `address`, `route` and `rule` are its subjects;
//! [`watch`] notices changes that others make. Called by the supervisor alone; nothing here is on
//! a packet's path.

mod address;
mod link;
mod route;
mod rule;
pub(crate) mod watch;

pub(crate) use link::{LinkState, Whereabouts};
pub(crate) use rule::Rule;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// A socket to rtnetlink that asks one thing at a time.
pub(crate) struct Rtnetlink {
    socket: Socket,
    sequence: u32,
}

/// A route request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub(crate) struct NetlinkError {
    /// What was attempted, with its values.
    pub(crate) what: String,
    /// The kernel's answer.
    pub(crate) error: io::Error,
}

impl NetlinkError {
    /// The error number, for the UAPI.
    pub(crate) fn errno(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(nix::libc::EIO)
    }
}

impl Rtnetlink {
    /// A conversation in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Rtnetlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // With it a dump's filter (a table, a family) is the kernel's work; kernels without it
        // ignore the filter and the reader checks.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Rtnetlink {
            socket,
            sequence: 0,
        })
    }

    /// Asks for a change and waits until it is done.
    fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &dyn Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(drop)
            .map_err(|error| NetlinkError {
                what: what(),
                error,
            })
    }

    /// Asks for one object.
    fn get(
        &mut self,
        message: RouteNetlinkMessage,
        what: &dyn Fn() -> String,
    ) -> Result<RouteNetlinkMessage, NetlinkError> {
        self.exchange(message, NLM_F_REQUEST)
            .and_then(|mut found| found.pop().ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|error| NetlinkError {
                what: what(),
                error,
            })
    }

    /// Asks for all objects of a kind.
    fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        what: &dyn Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_DUMP)
            .map_err(|error| NetlinkError {
                what: what(),
                error,
            })
    }

    /// Sends a request and reads until its last answer.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            if self.take(&answer, flags, &mut found)? {
                return Ok(found);
            }
        }
    }

    /// Reads one datagram of answers; true when the last was among them.
    fn take(
        &self,
        datagram: &[u8],
        flags: u16,
        found: &mut Vec<RouteNetlinkMessage>,
    ) -> io::Result<bool> {
        let dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        for bytes in messages(datagram) {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Error(error) => {
                    return match error.code {
                        Some(_) => Err(error.to_io()),
                        None => Ok(true),
                    };
                }
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::InnerMessage(inner) => {
                    found.push(inner);
                    if !dump && flags & NLM_F_ACK == 0 {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// The messages that lie one behind the other in a datagram.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    const HEADER: usize = 16;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*datagram.first_chunk::<4>()?) as usize;
        if length < HEADER || length > datagram.len() {
            return None;
        }
        let message = &datagram[..length];
        datagram = &datagram[length.next_multiple_of(4).min(datagram.len())..];
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_the_datagram_does() {
        let mut one = 18_u32.to_ne_bytes().to_vec();
        one.resize(20, 0);
        let mut two = 16_u32.to_ne_bytes().to_vec();
        two.resize(16, 0);
        let both = [one.clone(), two].concat();
        let lengths: Vec<usize> = messages(&both).map(<[u8]>::len).collect();
        assert_eq!(lengths, [18, 16]);
        assert_eq!(messages(&both[..30]).count(), 1);
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(messages(&[255; 64]).count(), 0);
    }

    #[test]
    fn loopback_is_there() {
        let mut netlink = Rtnetlink::open().unwrap();
        let lo = netlink.link(1, None).unwrap();
        assert_eq!(lo.name, "lo");
        assert!(lo.mtu >= 1280);
    }
}
