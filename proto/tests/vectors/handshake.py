#!/usr/bin/env python3
"""Computes a handshake straight from the WireGuard white paper.

Standard library only and nothing in common with the Rust code, so that
`handshake.txt`, its output, is a second opinion. Run: ./handshake.py > handshake.txt
"""

import hashlib
import hmac as stdlib_hmac
import struct

CONSTRUCTION = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
IDENTIFIER = b"WireGuard v1 zx2c4 Jason@zx2c4.com"


# X25519, RFC 7748


def clamp(scalar):
    s = bytearray(scalar)
    s[0] &= 248
    s[31] = s[31] & 127 | 64
    return bytes(s)


def x25519(scalar, point=b"\x09" + bytes(31)):
    p = 2**255 - 19
    k = int.from_bytes(clamp(scalar), "little")
    x1 = (int.from_bytes(point, "little") & (2**255 - 1)) % p
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, x1 * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


# ChaCha20-Poly1305, RFC 8439, and XChaCha20-Poly1305


def rounds(state):
    s = list(state)

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = s[x] + s[y] & 0xFFFFFFFF
            v = s[z] ^ s[x]
            s[z] = (v << turn | v >> 32 - turn) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return s


SIGMA = struct.unpack("<4I", b"expand 32-byte k")


def block(key, counter, nonce):
    state = SIGMA + struct.unpack("<8I", key) + (counter,) + struct.unpack("<3I", nonce)
    return struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(rounds(state), state)))


def hchacha(key, nonce):
    s = rounds(SIGMA + struct.unpack("<8I", key) + struct.unpack("<4I", nonce))
    return struct.pack("<8I", *s[:4], *s[12:])


def stream(key, nonce, data):
    out = b""
    for i in range(0, len(data), 64):
        out += bytes(a ^ b for a, b in zip(data[i : i + 64], block(key, 1 + i // 64, nonce)))
    return out


def tag(key, nonce, sealed, associated):
    one_time = block(key, 0, nonce)
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    pad = lambda data: data + bytes(-len(data) % 16)
    text = pad(associated) + pad(sealed) + struct.pack("<QQ", len(associated), len(sealed))
    total = 0
    for i in range(0, len(text), 16):
        total = (total + int.from_bytes(text[i : i + 16] + b"\x01", "little")) * r % (2**130 - 5)
    total += int.from_bytes(one_time[16:32], "little")
    return (total % 2**128).to_bytes(16, "little")


def aead(key, counter, plain, associated):
    nonce = bytes(4) + struct.pack("<Q", counter)
    sealed = stream(key, nonce, plain)
    return sealed + tag(key, nonce, sealed, associated)


def xaead(key, nonce, plain, associated):
    key, nonce = hchacha(key, nonce[:16]), bytes(4) + nonce[16:]
    sealed = stream(key, nonce, plain)
    return sealed + tag(key, nonce, sealed, associated)


# The functions of section 5.4


def hash_(*parts):
    return hashlib.blake2s(b"".join(parts)).digest()


def mac(key, data):
    return hashlib.blake2s(data, key=key, digest_size=16).digest()


def kdf(n, key, data):
    hmac = lambda k, d: stdlib_hmac.new(k, d, hashlib.blake2s).digest()
    secret, last, out = hmac(key, data), b"", []
    for i in range(1, n + 1):
        last = hmac(secret, last + bytes([i]))
        out.append(last)
    return out


class Handshake:
    """Chaining key and hash, which both sides compute alike."""

    def __init__(self, responder):
        self.c = hash_(CONSTRUCTION)
        self.h = hash_(self.c, IDENTIFIER)
        self.mix(responder)

    def mix(self, data):
        self.h = hash_(self.h, data)
        return data

    def ephemeral(self, public):
        (self.c,) = kdf(1, self.c, public)
        return self.mix(public)

    def seal(self, key, plain):
        return self.mix(aead(key, 0, plain, self.h))

    def dh(self, private, public, n):
        self.c, *rest = kdf(n, self.c, x25519(private, public))
        return rest[0] if rest else None


def compute(initiator, responder, e_i, e_r, psk, timestamp, index_i, index_r):
    s_i, s_r = x25519(initiator), x25519(responder)
    hs = Handshake(s_r)

    message = b"\x01\0\0\0" + struct.pack("<I", index_i) + hs.ephemeral(x25519(e_i))
    message += hs.seal(hs.dh(e_i, s_r, 2), s_i)
    message += hs.seal(hs.dh(initiator, s_r, 2), timestamp)
    initiation = message + mac(hash_(b"mac1----", s_r), message)

    message = b"\x02\0\0\0" + struct.pack("<II", index_r, index_i) + hs.ephemeral(x25519(e_r))
    hs.dh(e_r, x25519(e_i), 1)
    hs.dh(e_r, s_i, 1)
    hs.c, tau, key = kdf(3, hs.c, psk)
    hs.mix(tau)
    message += hs.seal(key, b"")
    response = message + mac(hash_(b"mac1----", s_i), message)
    send_i, send_r = kdf(2, hs.c, b"")
    return initiation, response, send_i, send_r


def main():
    secret = lambda name: hashlib.blake2s(name.encode()).digest()
    given = {
        "initiator_private": clamp(secret("initiator")),
        "responder_private": clamp(secret("responder")),
        "initiator_ephemeral": clamp(secret("first ephemeral")),
        "responder_ephemeral": clamp(secret("second ephemeral")),
        "preshared_key": secret("preshared"),
        "timestamp": struct.pack(">QI", 0x400000000000000A + 1_700_000_000, 3 << 24),
    }
    index_i, index_r = 0x01020304, 0xA0B0C0D0
    initiation, response, send_i, send_r = compute(*given.values(), index_i, index_r)

    s_r = x25519(given["responder_private"])
    cookie, nonce = secret("cookie")[:16], secret("nonce")[:24]
    sealed = xaead(hash_(b"cookie--", s_r), nonce, cookie, initiation[-16:])
    results = {
        "initiator_public": x25519(given["initiator_private"]),
        "responder_public": s_r,
        "initiation": initiation + bytes(16),
        "response": response + bytes(16),
        "initiator_sends": send_i,
        "responder_sends": send_r,
        "cookie_reply": b"\x03\0\0\0" + struct.pack("<I", index_i) + nonce + sealed,
        "initiation_mac2": mac(cookie, initiation),
    }
    for name, value in {**given, **results}.items():
        print(name, "=", value.hex())


if __name__ == "__main__":
    main()
