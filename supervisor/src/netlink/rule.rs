//! The policy rules that go with a default route.

use super::{NetlinkError, Rtnetlink};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::route::RouteHeader;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// One of the two rules that wg-quick puts before the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// `not fwmark MARK table MARK`: everything but the tunnel's own datagrams looks there.
    NotMarked(u32),
    /// `table main suppress_prefixlength 0`: the main table, save for its default route.
    MainButDefault,
}

impl Rtnetlink {
    /// Adds a rule before those that are there.
    pub(crate) fn add_rule(&mut self, rule: Rule, ipv4: bool) -> Result<(), NetlinkError> {
        let what = || format!("policy rule {rule:?}");
        // Without NLM_F_EXCL: another tunnel may have made the same rule, and each removes one.
        self.change(
            RouteNetlinkMessage::NewRule(message(rule, ipv4)),
            NLM_F_CREATE,
            &what,
        )
    }

    /// Removes one rule of this kind; none is no error.
    pub(crate) fn remove_rule(&mut self, rule: Rule, ipv4: bool) -> Result<(), NetlinkError> {
        let what = || format!("removal of policy rule {rule:?}");
        match self.change(RouteNetlinkMessage::DelRule(message(rule, ipv4)), 0, &what) {
            Err(error) if error.errno() == nix::libc::ENOENT => Ok(()),
            other => other,
        }
    }
}

fn message(rule: Rule, ipv4: bool) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if ipv4 {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.action = RuleAction::ToTable;
    match rule {
        Rule::NotMarked(mark) => {
            message.header.flags = RuleFlags::Invert;
            message.attributes.push(RuleAttribute::FwMark(mark));
            message.attributes.push(RuleAttribute::Table(mark));
        }
        Rule::MainButDefault => {
            message.header.table = RouteHeader::RT_TABLE_MAIN;
            message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        }
    }
    message
}
