//! The WireGuard user-space API as a client speaks it, for what `wg` would not send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Where user-space daemons put their sockets.
pub fn socket(interface: &str) -> String {
    format!("/var/run/wireguard/{interface}.sock")
}

/// Sends `request` (without the blank line that ends it) and returns the answer up to its blank line.
///
/// # Errors
/// What the socket says.
pub fn ask(interface: &str, request: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket(interface))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = Vec::new();
    let mut piece = vec![0; 65536];
    while !answer.ends_with(b"\n\n") {
        match stream.read(&mut piece)? {
            0 => break,
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The `errno` of an answer, without its sign: daemons send it negative, the specification has it positive.
///
/// # Panics
/// If there is none.
pub fn errno(answer: &str) -> i32 {
    answer
        .lines()
        .find_map(|line| line.strip_prefix("errno="))
        .and_then(|value| value.parse::<i32>().ok())
        .map_or_else(|| panic!("an answer without errno: {answer:?}"), i32::abs)
}
