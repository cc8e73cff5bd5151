//! Host names to addresses, by the system's resolver.

use std::net::{SocketAddr, ToSocketAddrs};

/// More addresses than these a name may have, but nobody needs.
const ADDRESSES: usize = 16;

/// The addresses of `host`, in the resolver's order. Blocks for as long as the resolver does.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| {
            format!("cannot resolve {host}: {error}: check the name and /etc/resolv.conf")
        })?
        .take(ADDRESSES)
        .collect();
    if found.is_empty() {
        return Err(format!(
            "cannot resolve {host}: it has no address: check the name"
        ));
    }
    Ok(found)
}
