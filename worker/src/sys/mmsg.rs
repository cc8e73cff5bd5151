//! recvmmsg(2) and sendmmsg(2): many datagrams a call.

use super::address::Name;
use super::cmsg::{self, CONTROL_BYTES, Control, Told};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

/// A received datagram; its bytes lie where the caller's buffer said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// How many bytes came.
    pub(crate) length: usize,
    /// Who sent it; `None` for a socket without addresses.
    pub(crate) source: Option<SocketAddr>,
    /// The local address that it came to.
    pub(crate) local: Option<IpAddr>,
    /// The interface that it came by; 0 unknown.
    pub(crate) ifindex: u32,
    /// Its ToS or traffic class.
    pub(crate) traffic_class: u8,
    /// The socket's count of lost datagrams, where it reports one.
    pub(crate) overflow: Option<u32>,
    /// Whether it was longer than the buffer.
    pub(crate) truncated: bool,
    /// How long each datagram in it is; the last may be shorter. Never 0.
    pub(crate) segment: usize,
}

/// A datagram to send, or a row of them: a range of the caller's buffer and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    /// Where it starts.
    pub(crate) start: usize,
    /// How long it is in all.
    pub(crate) length: usize,
    /// How long each datagram of a row is; only the last may be shorter. 0: it is one.
    pub(crate) segment: u16,
    /// To whom.
    pub(crate) remote: SocketAddr,
    /// From which local address; `None`: the kernel's choice.
    pub(crate) local: Option<IpAddr>,
    /// By which interface; used with `local` only.
    pub(crate) ifindex: u32,
    /// The ToS or traffic class.
    pub(crate) traffic_class: u8,
}

/// The arrays that both calls work on, allocated once.
struct Vectors {
    headers: Box<[libc::mmsghdr]>,
    iovecs: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
}

impl Outgoing {
    /// How many datagrams it is.
    pub(crate) fn count(&self) -> usize {
        match self.segment {
            0 => 1,
            segment => self.length.div_ceil(segment.into()),
        }
    }
}

impl Vectors {
    fn new(messages: usize) -> Vectors {
        // SAFETY: mmsghdr and iovec consist of integers and raw pointers; zero is a value of
        // both. Every field is set anew before a call.
        let (header, iovec) = unsafe { (zeroed::<libc::mmsghdr>(), zeroed::<libc::iovec>()) };
        Vectors {
            headers: vec![header; messages].into_boxed_slice(),
            iovecs: vec![iovec; messages].into_boxed_slice(),
            names: vec![Name::empty(); messages].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_BYTES]); messages].into_boxed_slice(),
        }
    }
}

/// Receives batches of datagrams.
pub(crate) struct Receiver(Vectors);

impl Receiver {
    /// For batches of at most `messages`.
    pub(crate) fn new(messages: usize) -> Receiver {
        Receiver(Vectors::new(messages))
    }

    /// Receives up to `count` datagrams into `buffer`, number i at `i * stride` with room for
    /// `room` bytes, and calls `each` with the number and the description of every one.
    ///
    /// recvmmsg(2): "returns the number of messages received in msgvec … The msg_len field
    /// is the number of bytes returned for the message"; on a non-blocking socket it returns
    /// what is there. "If an error occurs after at least one message has been received, the call
    /// succeeds, and returns the number of messages received. The error code is expected to be
    /// returned on a subsequent call".
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        stride: usize,
        room: usize,
        count: usize,
        mut each: impl FnMut(usize, Received),
    ) -> io::Result<usize> {
        let vectors = &mut self.0;
        let fitting = if buffer.len() < room || stride < room {
            0
        } else {
            (buffer.len() - room) / stride.max(1) + 1
        };
        let count = count.min(vectors.headers.len()).min(fitting);
        if count == 0 {
            return Ok(0);
        }
        let base = buffer.as_mut_ptr();
        for i in 0..count {
            // In bounds: i < fitting, so that i * stride + room <= buffer.len().
            let start = base.wrapping_add(i * stride);
            vectors.names[i] = Name::empty();
            vectors.iovecs[i] = libc::iovec {
                iov_base: start.cast(),
                iov_len: room,
            };
            let header = &mut vectors.headers[i];
            header.msg_len = 0;
            header.msg_hdr.msg_name = (&raw mut vectors.names[i]).cast();
            header.msg_hdr.msg_namelen = Name::LENGTH;
            header.msg_hdr.msg_iov = &raw mut vectors.iovecs[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (&raw mut vectors.controls[i].0).cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            header.msg_hdr.msg_flags = 0;
        }
        // SAFETY: `headers` has at least `count` entries; each points to one iovec, one name and
        // one control buffer that live in `self`, and to `room` bytes inside `buffer`, which is
        // borrowed for the whole call; the ranges don't overlap since stride >= room.
        let result = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                vectors.headers.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
                null_mut(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let received = (result as usize).min(count);
        for i in 0..received {
            let header = &vectors.headers[i];
            let length = (header.msg_len as usize).min(room);
            let told = match header.msg_hdr.msg_controllen.min(CONTROL_BYTES) {
                0 => Told::default(),
                bytes => cmsg::read(&vectors.controls[i].0[..bytes]),
            };
            each(
                i,
                Received {
                    length,
                    source: vectors.names[i].get(header.msg_hdr.msg_namelen),
                    local: told.local,
                    ifindex: told.ifindex,
                    traffic_class: told.traffic_class,
                    overflow: told.overflow,
                    truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                    segment: if told.segment == 0 {
                        length.max(1)
                    } else {
                        told.segment
                    },
                },
            );
        }
        Ok(received)
    }
}

/// Sends batches of datagrams.
pub(crate) struct Sender(Vectors);

impl Sender {
    /// For batches of at most `messages`; longer ones are sent in part.
    pub(crate) fn new(messages: usize) -> Sender {
        Sender(Vectors::new(messages))
    }

    /// Sends `datagrams`, whose ranges lie in `buffer`, in order; returns how many the kernel
    /// took. The next call with the rest tells why it took no more.
    ///
    /// sendmmsg(2): "A nonblocking call sends as many messages as possible (up to the limit
    /// specified by vlen) and returns an error immediately. On return from sendmmsg(), … the
    /// return value is the number of messages sent; if this is less than vlen, the caller can
    /// retry with a further call to send the remaining messages. … An error is returned only if
    /// no datagrams could be sent."
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        v6: bool,
        buffer: &[u8],
        datagrams: &[Outgoing],
    ) -> io::Result<usize> {
        let vectors = &mut self.0;
        let count = datagrams.len().min(vectors.headers.len());
        for (i, datagram) in datagrams[..count].iter().enumerate() {
            let bytes = &buffer[datagram.start..datagram.start + datagram.length];
            let name_length = vectors.names[i].set(&datagram.remote);
            let control_length = cmsg::write(
                &mut vectors.controls[i],
                v6,
                datagram.local,
                datagram.ifindex,
                datagram.traffic_class,
                datagram.segment,
            );
            vectors.iovecs[i] = libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            let header = &mut vectors.headers[i];
            header.msg_len = 0;
            header.msg_hdr.msg_name = (&raw mut vectors.names[i]).cast();
            header.msg_hdr.msg_namelen = name_length;
            header.msg_hdr.msg_iov = &raw mut vectors.iovecs[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = if control_length == 0 {
                null_mut()
            } else {
                (&raw mut vectors.controls[i].0).cast()
            };
            header.msg_hdr.msg_controllen = control_length as _;
            header.msg_hdr.msg_flags = 0;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: `headers` has `count` entries; each points to a name, a control buffer and an
        // iovec that live in `self` and to bytes inside `buffer`, which is borrowed for the whole
        // call. The kernel only reads what the iovecs point to.
        let result = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                vectors.headers.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((result as usize).min(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_batch_arrives_in_order_with_its_source() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let buffer: Vec<u8> = (0..100).collect();
        let datagrams: Vec<Outgoing> = (0..10)
            .map(|i| Outgoing {
                start: i * 10,
                length: i + 1,
                segment: 0,
                remote: to.local_addr().unwrap(),
                local: (i % 2 == 0).then(|| "127.0.0.1".parse().unwrap()),
                ifindex: 0,
                traffic_class: 1,
            })
            .collect();
        let mut sender = Sender::new(16);
        let sent = sender
            .send(from.as_fd(), false, &buffer, &datagrams)
            .unwrap();
        assert_eq!(sent, 10);

        let mut receiver = Receiver::new(16);
        let mut room = vec![0; 16 * 32];
        let mut seen = Vec::new();
        let count = receiver
            .receive(to.as_fd(), &mut room, 32, 32, 16, |i, received| {
                seen.push((i, received));
            })
            .unwrap();
        assert_eq!(count, 10);
        for (i, received) in seen {
            assert_eq!(received.length, i + 1);
            assert_eq!(received.source, Some(from.local_addr().unwrap()));
            assert!(!received.truncated);
            assert_eq!(room[i * 32..][..=i], buffer[i * 10..][..=i]);
        }
    }

    #[test]
    fn a_datagram_longer_than_its_room_is_told() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.send_to(&[1; 100], to.local_addr().unwrap()).unwrap();
        let mut receiver = Receiver::new(2);
        let mut room = [0; 16];
        let mut truncated = false;
        receiver
            .receive(to.as_fd(), &mut room, 16, 16, 2, |_, received| {
                truncated = received.truncated;
            })
            .unwrap();
        assert!(truncated);
    }
}
