//! The two programs that spread packets: which socket of a group gets a datagram, and which TUN
//! queue gets a packet.
//!
//! Correctness never depends on them; they spare the hand-over through a ring.

use crate::sys::bpf::{Classic, Extended};

/// The program of a `SO_REUSEPORT` group of `shards` sockets and meta's one after them.
///
/// The kernel runs it on the payload, after the UDP header (net/core/sock_reuseport.c,
/// `run_bpf_filter`). Transport data (type 4) goes to `receiver_index & (shards - 1)`: the index
/// is little endian and `shards` at most 64, so its first byte, at offset 4, is all that counts.
/// A load beyond the end ends the program with 0: what is too short for an index reaches shard 0.
pub(crate) fn group_program(shards: u8) -> [Classic; 6] {
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const RETURN_A: u16 = 0x16; // BPF_RET | BPF_A
    let op = |code, k| Classic {
        code,
        jump_true: 0,
        jump_false: 0,
        k,
    };
    [
        op(LOAD_BYTE, 0),
        Classic {
            code: JUMP_EQUAL,
            jump_true: 0,
            jump_false: 3,
            k: 4,
        },
        op(LOAD_BYTE, 4),
        op(AND, u32::from(shards) - 1),
        op(RETURN_A, 0),
        op(RETURN, u32::from(shards)),
    ]
}

/// The program that chooses a TUN queue: the packet's flow hash, modulo the queues (which the
/// kernel does, drivers/net/tun.c, `tun_ebpf_select_queue`).
///
/// Connected sockets and network cards leave a hash in the packet; where it is 0 (an unconnected
/// UDP socket, ICMP, forwarded from a card without one) the program makes one from addresses,
/// protocol and ports, since else all such flows would share queue 0. Ports of fragments are left
/// out, so that all of a packet's fragments stay together.
pub(crate) fn queue_program() -> Vec<Extended> {
    // r6 the packet, r0 what a load gave, r7 the hash, r8 the length of the IP header.
    let mut program = Program::default();
    program.push(MOVE, 6, 1, 0, 0);
    program.push(LOAD_CONTEXT, 0, 1, HASH_IN_CONTEXT, 0);
    program.jump(JUMP_NOT_EQUAL, 0, 0, Label::End);
    program.push(MOVE_K, 7, 0, 0, 0);
    program.push(LOAD_BYTE, 0, 0, 0, 0);
    program.push(MOVE, 8, 0, 0, 0);
    program.push(SHIFT_RIGHT_K, 0, 0, 0, 4);
    program.jump(JUMP_EQUAL, 0, 6, Label::Ipv6);
    program.jump(JUMP_NOT_EQUAL, 0, 4, Label::Mix);

    program.push(AND_K, 8, 0, 0, 0xf);
    program.push(SHIFT_LEFT_K, 8, 0, 0, 2);
    program.fold_words(&[12, 16]);
    program.push(LOAD_HALF, 0, 0, 0, 6);
    program.push(AND_K, 0, 0, 0, 0x3fff);
    program.jump(JUMP_NOT_EQUAL, 0, 0, Label::Mix);
    program.push(LOAD_BYTE, 0, 0, 0, 9);
    program.jump(JUMP_ALWAYS, 0, 0, Label::Ports);

    program.place(Label::Ipv6);
    program.push(MOVE_K, 8, 0, 0, 40);
    program.fold_words(&[8, 12, 16, 20, 24, 28, 32, 36]);
    program.push(LOAD_BYTE, 0, 0, 0, 6);

    program.place(Label::Ports);
    program.push(ADD, 7, 0, 0, 0);
    program.jump(JUMP_EQUAL, 0, 6, Label::LoadPorts);
    program.jump(JUMP_NOT_EQUAL, 0, 17, Label::Mix);
    program.place(Label::LoadPorts);
    program.push(LOAD_WORD_AT, 0, 8, 0, 0);
    program.fold();

    // The finish of MurmurHash3: the remainder uses the low bits alone.
    program.place(Label::Mix);
    for (shift, factor) in [
        (16, Some(0x85eb_ca6b_u32)),
        (13, Some(0xc2b2_ae35)),
        (16, None),
    ] {
        program.push(MOVE, 0, 7, 0, 0);
        program.push(SHIFT_RIGHT_K, 0, 0, 0, shift);
        program.push(XOR, 7, 0, 0, 0);
        if let Some(factor) = factor {
            program.push(MULTIPLY_K, 7, 0, 0, factor as i32);
        }
    }
    program.push(MOVE, 0, 7, 0, 0);
    program.place(Label::End);
    program.push(EXIT, 0, 0, 0, 0);
    program.finish()
}

/// `offsetof(struct __sk_buff, hash)`.
const HASH_IN_CONTEXT: i16 = 68;

// linux/bpf_common.h and linux/bpf.h; arithmetic is of 32 bits, but for the one move of the
// context, which is a pointer.
const LOAD_CONTEXT: u8 = 0x61; // BPF_LDX | BPF_W | BPF_MEM
const LOAD_BYTE: u8 = 0x30; // BPF_LD | BPF_B | BPF_ABS
const LOAD_HALF: u8 = 0x28; // BPF_LD | BPF_H | BPF_ABS
const LOAD_WORD: u8 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const LOAD_WORD_AT: u8 = 0x40; // BPF_LD | BPF_W | BPF_IND
const MOVE: u8 = 0xbf; // BPF_ALU64 | BPF_MOV | BPF_X
const MOVE_K: u8 = 0xb4; // BPF_ALU | BPF_MOV | BPF_K
const ADD: u8 = 0x0c; // BPF_ALU | BPF_ADD | BPF_X
const XOR: u8 = 0xac; // BPF_ALU | BPF_XOR | BPF_X
const AND_K: u8 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const SHIFT_LEFT_K: u8 = 0x64; // BPF_ALU | BPF_LSH | BPF_K
const SHIFT_RIGHT_K: u8 = 0x74; // BPF_ALU | BPF_RSH | BPF_K
const MULTIPLY_K: u8 = 0x24; // BPF_ALU | BPF_MUL | BPF_K
const JUMP_ALWAYS: u8 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u8 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_NOT_EQUAL: u8 = 0x55; // BPF_JMP | BPF_JNE | BPF_K
const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Ipv6,
    Ports,
    LoadPorts,
    Mix,
    End,
}

/// Instructions whose jumps are filled in when all labels have their place.
#[derive(Default)]
struct Program {
    instructions: Vec<Extended>,
    jumps: Vec<(usize, Label)>,
    places: Vec<(Label, usize)>,
}

impl Program {
    fn push(&mut self, code: u8, destination: u8, source: u8, offset: i16, immediate: i32) {
        let registers = destination | source << 4;
        self.instructions.push(Extended {
            code,
            registers,
            offset,
            immediate,
        });
    }

    fn jump(&mut self, code: u8, register: u8, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, register, 0, 0, immediate);
    }

    fn place(&mut self, label: Label) {
        self.places.push((label, self.instructions.len()));
    }

    /// Takes these words of the packet into the hash, order counting.
    fn fold_words(&mut self, offsets: &[i32]) {
        for offset in offsets {
            self.push(LOAD_WORD, 0, 0, 0, *offset);
            self.fold();
        }
    }

    fn fold(&mut self) {
        self.push(XOR, 7, 0, 0, 0);
        self.push(MULTIPLY_K, 7, 0, 0, 0x9e37_79b1_u32 as i32);
    }

    fn finish(mut self) -> Vec<Extended> {
        for (at, label) in &self.jumps {
            if let Some((_, place)) = self.places.iter().find(|(placed, _)| placed == label) {
                self.instructions[*at].offset = *place as i16 - *at as i16 - 1;
            }
        }
        self.instructions
    }
}
