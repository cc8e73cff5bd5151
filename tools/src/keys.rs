//! `genkey`, `pubkey` and `genpsk`, as wg(8) has them.

use std::io::{self, IsTerminal, Read, Write};

use nix::sys::stat::{SFlag, fstat};
use ringway_proto::keys::{PresharedKey, PrivateKey};
use zeroize::Zeroizing;

use crate::error::{Failure, Outcome};

/// As much of standard input as is read; a key has 44 characters.
const MOST_INPUT: u64 = 256;

/// Writes a new private key.
pub(crate) fn genkey() -> Outcome {
    warn_if_others_can_read();
    let key = PrivateKey::generate().map_err(|why| Failure::failed(why.to_string()))?;
    print(&key.to_base64())
}

/// Writes a new preshared key.
pub(crate) fn genpsk() -> Outcome {
    warn_if_others_can_read();
    let key = PresharedKey::generate().map_err(|why| Failure::failed(why.to_string()))?;
    print(&key.to_base64())
}

/// Reads a private key, writes its public key.
pub(crate) fn pubkey() -> Outcome {
    let input = io::stdin();
    if input.is_terminal() {
        eprintln!("ringway: pubkey reads a private key from standard input; end it with Ctrl-D");
    }
    let public = public_of(input.lock())?;
    print(&public)
}

/// The public key of the private key that `input` holds, both in base64.
fn public_of(input: impl Read) -> Outcome<String> {
    // Allocated whole, so that no copy of the key is left behind by growing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_INPUT as usize + 32));
    input
        .take(MOST_INPUT)
        .read_to_end(&mut bytes)
        .map_err(|why| {
            Failure::failed(format!(
                "pubkey: standard input: {why}: pipe a private key into it"
            ))
        })?;
    // As wg does: the key, then nothing but white space.
    let key = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| PrivateKey::from_base64(text.trim_ascii_end()).ok())
        .ok_or_else(|| {
            Failure::failed(
                "pubkey: standard input is no private key: give 44 characters of base64, as `ringway genkey` writes them",
            )
        })?;
    Ok(key.public().to_base64())
}

fn print(line: &str) -> Outcome {
    let mut output = io::stdout().lock();
    output
        .write_all(line.as_bytes())
        .and_then(|()| output.write_all(b"\n"))
        .and_then(|()| output.flush())
        .map_err(|why| Failure::failed(format!("standard output: {why}: the key was not written")))
}

/// The warning of wg(8), where standard output is a file that everybody may read.
fn warn_if_others_can_read() {
    let readable = fstat(io::stdout()).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG
            && stat.st_mode & 0o007 != 0
    });
    if readable {
        eprintln!(
            "ringway: warning: writing a secret to a world-readable file: `umask 077` first, or chmod 600 it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, section 6.1: the keys of Alice and Bob.
    const VECTORS: [(&str, &str); 2] = [
        (
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=",
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
        ),
        (
            "XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=",
            "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
        ),
    ];

    #[test]
    fn public_keys_are_those_of_the_rfc() {
        for (private, public) in VECTORS {
            assert_eq!(public_of(private.as_bytes()).unwrap(), public);
            assert_eq!(
                public_of(format!("{private}\n\t \n").as_bytes()).unwrap(),
                public
            );
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        let key = VECTORS[0].0;
        for bad in [
            String::new(),
            key[..43].to_owned(),
            format!("{key}="),
            format!("{key}\nx"),
            format!(" {key}"),
            key.replace('=', "A"),
            key.replace('C', "!"),
            "x".repeat(100_000),
        ] {
            let failure = public_of(bad.as_bytes()).unwrap_err();
            assert_eq!(failure.code(), 1);
            assert!(!failure.to_string().contains("dwdt"), "{failure}");
        }
        assert!(public_of(&[0xff; 44][..]).is_err());
    }
}
