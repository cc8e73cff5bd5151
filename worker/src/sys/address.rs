//! Socket addresses in the kernel's form.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family, as `msg_name` points to.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    pub(super) const LENGTH: libc::socklen_t = size_of::<Name>() as libc::socklen_t;

    /// All zero: family AF_UNSPEC.
    pub(super) fn empty() -> Name {
        // SAFETY: each variant consists of integers, for which all zero bytes are a value.
        unsafe { zeroed() }
    }

    /// Encodes `address` and returns the length that goes with it.
    pub(super) fn set(&mut self, address: &SocketAddr) -> libc::socklen_t {
        *self = Name::empty();
        match address {
            SocketAddr::V4(address) => {
                self.v4.sin_family = libc::AF_INET as libc::sa_family_t;
                self.v4.sin_port = address.port().to_be();
                self.v4.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(address) => {
                self.v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                self.v6.sin6_port = address.port().to_be();
                self.v6.sin6_addr.s6_addr = address.ip().octets();
                self.v6.sin6_scope_id = address.scope_id();
                size_of::<libc::sockaddr_in6>() as libc::socklen_t
            }
        }
    }

    /// The address, if the kernel wrote one of a family that is known here.
    pub(super) fn get(&self, length: libc::socklen_t) -> Option<SocketAddr> {
        // SAFETY: every byte of the union was initialised by `empty`, and every variant holds
        // integers only, so that reading any of them is defined.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET if length as usize >= size_of::<libc::sockaddr_in>() => {
                    let octets = self.v4.sin_addr.s_addr.to_ne_bytes();
                    Some(SocketAddr::V4(SocketAddrV4::new(
                        Ipv4Addr::from(octets),
                        u16::from_be(self.v4.sin_port),
                    )))
                }
                libc::AF_INET6 if length as usize >= size_of::<libc::sockaddr_in6>() => {
                    Some(SocketAddr::V6(SocketAddrV6::new(
                        Ipv6Addr::from(self.v6.sin6_addr.s6_addr),
                        u16::from_be(self.v6.sin6_port),
                        0,
                        self.v6.sin6_scope_id,
                    )))
                }
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["192.0.2.1:51820", "[2001:db8::1]:1", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = Name::empty();
            let length = name.set(&address);
            assert_eq!(name.get(length), Some(address));
        }
        assert_eq!(Name::empty().get(Name::LENGTH), None);
    }
}
