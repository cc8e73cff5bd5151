//! Bytes in order: little-endian numbers and addresses, written into and read from a fixed space.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Writes into a space that the caller made large enough; what does not fit is left out.
pub(super) struct Writer<'a> {
    space: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(space: &'a mut [u8]) -> Writer<'a> {
        Writer { space, length: 0 }
    }

    /// How much was written.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.bytes(&[number]);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// 17 bytes: the version (0: none) and the address.
    pub(super) fn ip(&mut self, address: Option<IpAddr>) {
        let (version, octets) = match address {
            None => (0, [0; 16]),
            Some(IpAddr::V4(v4)) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&v4.octets());
                (4, octets)
            }
            Some(IpAddr::V6(v6)) => (6, v6.octets()),
        };
        self.u8(version);
        self.bytes(&octets);
    }

    /// 23 bytes: address, port, scope.
    pub(super) fn socket_address(&mut self, address: SocketAddr) {
        self.ip(Some(address.ip()));
        self.u16(address.port());
        self.u32(match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        });
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(space) = self.space.get_mut(self.length..self.length + bytes.len()) {
            space.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }
}

/// Reads any bytes; `None`: they end too soon or mean nothing.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The value, if nothing is left behind it.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes().map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// The outer `None`: these bytes are no address; the inner: they say that there is none.
    #[expect(clippy::option_option, reason = "each layer has its meaning")]
    pub(super) fn ip(&mut self) -> Option<Option<IpAddr>> {
        let version = self.u8()?;
        let octets: [u8; 16] = self.bytes()?;
        let [a, b, c, d, ..] = octets;
        match version {
            0 => Some(None),
            4 => Some(Some(Ipv4Addr::from([a, b, c, d]).into())),
            6 => Some(Some(Ipv6Addr::from(octets).into())),
            _ => None,
        }
    }

    pub(super) fn socket_address(&mut self) -> Option<SocketAddr> {
        let ip = self.ip()??;
        let port = self.u16()?;
        let scope = self.u32()?;
        Some(match ip {
            IpAddr::V4(v4) => (v4, port).into(),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
        })
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*bytes)
    }
}
