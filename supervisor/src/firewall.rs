//! The firewall table that goes with a default route through the tunnel, as wg-quick sets it up: nobody on the
//! local network may reach the tunnel's addresses by sending to them directly, and replies to the tunnel's own
//! datagrams keep their firewall mark so that the policy rules recognise them.
//!
//! The table belongs to the socket in [`Guard`] (netlink's owner flag): the kernel removes it when the guard is
//! dropped and also when the process is killed. Nothing of other tables is touched.

use std::ffi::CString;
use std::io;
use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nftnl::{
    Batch, Chain, ChainType, Hook, MsgType, Policy, ProtoFamily, Rule, Table, expr::Expression,
    nft_expr,
};
use thiserror::Error;

use crate::sys::nft::{FibSourceType, OwnedTable};

const PRIORITY_RAW: i32 = -300;
const PRIORITY_MANGLE: i32 = -150;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const IPPROTO_UDP: u8 = 17;
const RTN_LOCAL: u32 = 2;

/// Why the table could not be made.
#[derive(Debug, Error)]
pub(crate) enum FirewallError {
    #[error("the interface name {0:?} contains a NUL byte")]
    Name(String),
    #[error(
        "the firewall table for the default route was refused: {0}; load nf_tables and nft_fib_inet (modprobe \
         nft_fib_inet), or set Table = off"
    )]
    Refused(#[source] io::Error),
}

/// The table, for as long as this lives.
pub(crate) struct Guard {
    _owner: Socket,
}

impl Guard {
    /// Makes the table `ringway-INTERFACE`: packets to one of `addresses` that do not come through the interface and
    /// not from this host are dropped; UDP that carries `fwmark` saves it in its conntrack entry, and what comes
    /// back gets it again.
    pub(crate) fn install(
        interface: &str,
        addresses: &[IpAddr],
        fwmark: u32,
    ) -> Result<Self, FirewallError> {
        let bad_name = |_| FirewallError::Name(interface.to_owned());
        let name = CString::new(format!("ringway-{interface}")).map_err(bad_name)?;
        let batch = batch(&name, interface, addresses, fwmark);
        let socket = send(&batch).map_err(FirewallError::Refused)?;
        Ok(Self { _owner: socket })
    }
}

fn batch(
    name: &CString,
    interface: &str,
    addresses: &[IpAddr],
    fwmark: u32,
) -> nftnl::FinalizedBatch {
    let mut batch = Batch::new();
    let family = ProtoFamily::Inet;
    let table = Table::new(name, family);
    batch.add(&OwnedTable { name, family }, MsgType::Add);
    let chain = |name, hook, kind, priority| {
        let mut chain = Chain::new(name, &table);
        chain.set_hook(hook, priority);
        chain.set_type(kind);
        chain.set_policy(Policy::Accept);
        chain
    };
    let preraw = chain(c"preraw", Hook::PreRouting, ChainType::Filter, PRIORITY_RAW);
    let premangle = chain(
        c"premangle",
        Hook::PreRouting,
        ChainType::Filter,
        PRIORITY_MANGLE,
    );
    let postmangle = chain(
        c"postmangle",
        Hook::PostRouting,
        ChainType::Filter,
        PRIORITY_MANGLE,
    );
    for chain in [&preraw, &premangle, &postmangle] {
        batch.add(chain, MsgType::Add);
    }
    for address in addresses {
        batch.add(&foreign_rule(&preraw, interface, *address), MsgType::Add);
    }
    let mut restore = Rule::new(&premangle);
    add(
        &mut restore,
        &[&nft_expr!(meta l4proto), &nft_expr!(cmp == IPPROTO_UDP)],
    );
    add(
        &mut restore,
        &[&nft_expr!(ct mark), &nft_expr!(meta mark set)],
    );
    batch.add(&restore, MsgType::Add);
    let mut save = Rule::new(&postmangle);
    add(
        &mut save,
        &[&nft_expr!(meta l4proto), &nft_expr!(cmp == IPPROTO_UDP)],
    );
    add(
        &mut save,
        &[
            &nft_expr!(meta mark),
            &nft_expr!(cmp == fwmark),
            &nft_expr!(ct mark set),
        ],
    );
    batch.add(&save, MsgType::Add);
    batch.finalize()
}

/// `iifname != INTERFACE ip daddr ADDRESS fib saddr type != local drop`
fn foreign_rule<'a>(chain: &'a Chain<'a>, interface: &str, address: IpAddr) -> Rule<'a> {
    let mut rule = Rule::new(chain);
    add(
        &mut rule,
        &[
            &nft_expr!(meta iifname),
            &nft_expr!(cmp != &padded_name(interface)[..]),
        ],
    );
    match address {
        IpAddr::V4(a) => {
            add(
                &mut rule,
                &[&nft_expr!(meta nfproto), &nft_expr!(cmp == NFPROTO_IPV4)],
            );
            add(
                &mut rule,
                &[&nft_expr!(payload ipv4 daddr), &nft_expr!(cmp == a)],
            );
        }
        IpAddr::V6(a) => {
            add(
                &mut rule,
                &[&nft_expr!(meta nfproto), &nft_expr!(cmp == NFPROTO_IPV6)],
            );
            add(
                &mut rule,
                &[&nft_expr!(payload ipv6 daddr), &nft_expr!(cmp == a)],
            );
        }
    }
    add(
        &mut rule,
        &[
            &FibSourceType,
            &nft_expr!(cmp != RTN_LOCAL),
            &nft_expr!(verdict drop),
        ],
    );
    rule
}

/// An interface name as nf_tables compares it: IFNAMSIZ bytes, filled up with zeros.
fn padded_name(interface: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let n = interface.len().min(15);
    name[..n].copy_from_slice(&interface.as_bytes()[..n]);
    name
}

fn add(rule: &mut Rule<'_>, expressions: &[&dyn Expression]) {
    for e in expressions {
        rule.add_expr(&ByRef(*e));
    }
}

/// `Rule::add_expr` takes a sized expression.
struct ByRef<'a>(&'a dyn Expression);
impl Expression for ByRef<'_> {
    fn to_expr(&self, rule: &Rule<'_>) -> std::ptr::NonNull<nftnl::nftnl_sys::nftnl_expr> {
        self.0.to_expr(rule)
    }
}

/// One transaction: the whole batch in one datagram, then an acknowledgement for each message in it.
fn send(batch: &nftnl::FinalizedBatch) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    let bytes: Vec<u8> = batch.iter().flatten().copied().collect();
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let mut waiting = batch.sequence_numbers().len();
    while waiting > 0 {
        let (reply, _) = socket.recv_from_full()?;
        for error in errors(&reply) {
            waiting = waiting.saturating_sub(1);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(-error));
            }
        }
    }
    Ok(socket)
}

/// The error numbers of the NLMSG_ERROR messages in `reply` (0: an acknowledgement).
fn errors(mut reply: &[u8]) -> Vec<i32> {
    const NLMSG_ERROR: u16 = 2;
    const HEADER: usize = 16;
    let mut found = Vec::new();
    while reply.len() >= HEADER + 4 {
        let length = u32::from_ne_bytes([reply[0], reply[1], reply[2], reply[3]]) as usize;
        let kind = u16::from_ne_bytes([reply[4], reply[5]]);
        if kind == NLMSG_ERROR {
            found.push(i32::from_ne_bytes([
                reply[16], reply[17], reply[18], reply[19],
            ]));
        }
        let next = length.max(HEADER).next_multiple_of(4).min(reply.len());
        reply = &reply[next..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_acknowledgement_in_a_reply() {
        let ack = |error: i32| {
            let mut m = vec![0u8; 36];
            m[0..4].copy_from_slice(&36u32.to_ne_bytes());
            m[4..6].copy_from_slice(&2u16.to_ne_bytes());
            m[16..20].copy_from_slice(&error.to_ne_bytes());
            m
        };
        let reply = [ack(0), ack(-17)].concat();
        assert_eq!(errors(&reply), vec![0, -17]);
        assert!(errors(&reply[..19]).is_empty());
        assert!(
            errors(&[0; 64]).is_empty(),
            "a message of length 0 must not loop"
        );
    }
}
