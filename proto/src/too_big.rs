//! ICMP messages that tell a sender its packet is too big.
