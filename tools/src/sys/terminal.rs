//! The terminal: keys without Enter while a screen is redrawn.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};

/// Standard input without echo and line editing; the former settings come back when this is dropped.
#[derive(Debug)]
pub(crate) struct Keys {
    former: Option<Termios>,
}

impl Keys {
    /// Takes standard input over if it is a terminal in whose foreground we are.
    pub(crate) fn take() -> Keys {
        let input = io::stdin();
        if !input.is_terminal() || !in_foreground() {
            return Keys { former: None };
        }
        let Ok(former) = tcgetattr(input.as_fd()) else {
            return Keys { former: None };
        };
        let mut raw = former.clone();
        raw.local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        match tcsetattr(input.as_fd(), SetArg::TCSANOW, &raw) {
            Ok(()) => Keys {
                former: Some(former),
            },
            Err(_) => Keys { former: None },
        }
    }

    /// Waits this long; true as soon as somebody pressed `q`, or a signal came.
    pub(crate) fn quit_within(&self, time: Duration) -> bool {
        let end = std::time::Instant::now() + time;
        loop {
            if super::signals::interrupted() {
                return true;
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            if self.former.is_none() {
                std::thread::sleep(left.min(Duration::from_millis(50)));
                continue;
            }
            let input = io::stdin();
            let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left.min(Duration::from_millis(50)))
                .unwrap_or(PollTimeout::ZERO);
            if poll(&mut polled, timeout) == Ok(1) {
                let mut keys = [0; 16];
                match input.lock().read(&mut keys) {
                    Ok(0) => std::thread::sleep(left.min(Duration::from_millis(50))),
                    Ok(length) if keys[..length].iter().any(|key| b"qQ".contains(key)) => {
                        return true;
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(former) = &self.former {
            let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, former);
        }
    }
}

/// `text` as a whole screen: drawn over the former one without clearing it first, so that it does not flicker; what
/// does not fit below is left out.
pub(crate) fn screen(text: &str) -> String {
    let rows = rows().unwrap_or(usize::MAX);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let shown = if lines.len() >= rows {
        rows.saturating_sub(2)
    } else {
        lines.len()
    };
    let mut screen = String::from("\x1b[H");
    for line in &lines[..shown] {
        screen.push_str(line);
        screen.push_str("\x1b[K\n");
    }
    if shown < lines.len() {
        let more = format!("… {} more lines\x1b[K\n", lines.len() - shown);
        screen.push_str(&more);
    }
    screen.push_str("\x1b[J");
    screen
}

/// The terminal's height; `None` where there is no terminal or it does not say.
fn rows() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize through the pointer, which is to a live one.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_row > 0).then_some(usize::from(size.ws_row))
}

fn in_foreground() -> bool {
    nix::unistd::tcgetpgrp(io::stdin().as_fd()).is_ok_and(|group| group == nix::unistd::getpgrp())
}
