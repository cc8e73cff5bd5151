//! What a datagram must get past before it makes work: its type, its length, MAC1 and, under load,
//! MAC2. Noise ends here; handshakes wait in the queue and go on in [`super::handshake`].

use super::core::Core;
use super::source::{Datagram, Source};
use ringway_proto::cookie::MacVerdict;
use ringway_proto::wire::{Initiation, MAC_LEN, MessageType, Response};
use ringway_shm::counters::{DropReason, add};
use ringway_shm::messages::PacketHeader;
use ringway_shm::state::RefusalReason;

impl Core {
    /// Takes a datagram as it came: noise ends here at the cost of one hash, handshakes wait in the
    /// queue, data goes to its worker.
    pub(crate) fn receive(&mut self, datagram: &[u8], source: Source, header: &PacketHeader) {
        let counters = self.rings.meta_counters();
        add(&counters.rx_packets, 1);
        add(&counters.rx_bytes, datagram.len() as u64);
        if source.remote.port() == 0 {
            // Nobody can be answered there.
            return self.dropped(DropReason::NoPort);
        }
        let wrong_length = |length: usize, expected: usize| {
            if length < expected {
                DropReason::Truncated
            } else {
                DropReason::Oversized
            }
        };
        match MessageType::of(datagram) {
            None if datagram.len() < 4 => self.dropped(DropReason::Truncated),
            None => self.dropped(DropReason::BadType),
            Some(MessageType::Data) => self.forward(datagram, header),
            Some(MessageType::Initiation) if datagram.len() != Initiation::LEN => {
                self.dropped(wrong_length(datagram.len(), Initiation::LEN));
            }
            Some(MessageType::Response) if datagram.len() != Response::LEN => {
                self.dropped(wrong_length(datagram.len(), Response::LEN));
            }
            Some(MessageType::CookieReply) => self.cookie_reply(datagram),
            Some(MessageType::Initiation | MessageType::Response) => self.enqueue(datagram, source),
        }
    }

    /// Works on the message that waits longest. `false`: none waits.
    pub(crate) fn work_off(&mut self) -> bool {
        let under_load = self.queue.under_load(self.now);
        let Some(waiting) = self.queue.pop() else {
            return false;
        };
        let message = waiting.bytes();
        if under_load && !self.prove_address(message, waiting.source) {
            return true;
        }
        let parsed = match MessageType::of(message) {
            Some(MessageType::Initiation) => Initiation::parse(message)
                .map(|initiation| self.initiation(&initiation, waiting.source)),
            _ => Response::parse(message).map(|response| self.response(&response, waiting.source)),
        };
        if parsed.is_err() {
            self.dropped(DropReason::BadHandshake);
        }
        true
    }

    /// How many handshake messages wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn forward(&mut self, datagram: &[u8], header: &PacketHeader) {
        let Some(index) = datagram
            .get(4..8)
            .and_then(|field| field.first_chunk::<4>())
        else {
            self.dropped(DropReason::Truncated);
            return;
        };
        if !self
            .workers
            .hand_over(&self.rings, u32::from_le_bytes(*index), *header, datagram)
        {
            self.dropped(DropReason::RingFull);
        }
    }

    fn enqueue(&mut self, message: &[u8], source: Source) {
        // A gateway that is down or has no key is not there, for the kernel as for us.
        let Some(identity) = self.identity.as_mut().filter(|_| self.gateway.link_up) else {
            self.dropped(DropReason::UnknownPeer);
            return;
        };
        // Before any hash: who has asked for so many cookies has got one.
        let begs = self.queue.under_load(self.now) && !has_mac2(message);
        if begs && !self.cookies.allow(source.remote, self.now) {
            self.queue.turn_away(self.now);
            return self.dropped(DropReason::UnderLoad);
        }
        if self.queue.is_full() {
            return self.dropped(DropReason::UnderLoad);
        }
        if identity
            .checker
            .check(message, source.remote, false, self.now)
            == MacVerdict::BadMac1
        {
            self.dropped(DropReason::BadMac1);
            self.refuse_unknown(RefusalReason::Mac1, source.remote);
            return;
        }
        self.queue.push(message, source);
    }

    /// Under load: whether the sender has shown a cookie and asks seldom enough. Else it gets one.
    fn prove_address(&mut self, message: &[u8], source: Source) -> bool {
        let Some(identity) = &mut self.identity else {
            return false;
        };
        match identity
            .checker
            .check(message, source.remote, true, self.now)
        {
            MacVerdict::BadMac1 => {
                self.dropped(DropReason::BadMac1);
                false
            }
            MacVerdict::Mac2Valid => {
                let allowed = self.limiter.allow(source.remote, self.now);
                if !allowed {
                    self.dropped(DropReason::RateLimited);
                    self.refuse_unknown(RefusalReason::RateLimited, source.remote);
                }
                allowed
            }
            MacVerdict::Mac1Only
                if has_mac2(message) && !self.cookies.allow(source.remote, self.now) =>
            {
                // A wrong cookie earns another one no more often than none.
                self.dropped(DropReason::UnderLoad);
                false
            }
            MacVerdict::Mac1Only => {
                let sender = message.get(4..8).and_then(|field| field.first_chunk::<4>());
                let sender = u32::from_le_bytes(*sender.unwrap_or(&[0; 4]));
                if let Ok(reply) =
                    identity
                        .checker
                        .cookie_reply(message, sender, source.remote, self.now)
                {
                    add(&self.rings.meta_counters().cookies_sent, 1);
                    self.out
                        .datagrams
                        .push(Datagram::new(source, 0, None, &reply.to_bytes()));
                }
                self.dropped(DropReason::UnderLoad);
                self.refuse_unknown(RefusalReason::CookieRequired, source.remote);
                false
            }
        }
    }
}

/// Whether a message claims to come with a cookie.
fn has_mac2(message: &[u8]) -> bool {
    message
        .last_chunk::<MAC_LEN>()
        .is_some_and(|mac2| *mac2 != [0; MAC_LEN])
}
