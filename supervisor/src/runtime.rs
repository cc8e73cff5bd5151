//! The files of a running gateway: `/run/ringway/NAME/` and the UAPI socket.

use crate::{cores, leftovers};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, fstat, stat, umask};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where every gateway has its directory.
const ROOT: &str = "/run/ringway";
/// Where `wg` looks for sockets.
const UAPI: &str = "/var/run/wireguard";
/// The group whose members may look.
const GROUP: &str = "ringway";

/// The files of one gateway; they are this process's while it holds the lock.
#[derive(Debug)]
pub(crate) struct Runtime {
    name: String,
    directory: PathBuf,
    /// The id of the group whose members may look, asked once: such a question may take long.
    readers: Option<u32>,
    /// Whether the UAPI socket is ours: until then the path may be another program's.
    listens: Cell<bool>,
    /// Held until the process ends.
    _lock: Flock<File>,
}

/// Why the files could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// Another ringwayd has the name.
    #[error("{0} runs already: stop it (ringway down {0}), or choose another name")]
    Running(String),
    /// Another WireGuard implementation has the name.
    #[error(
        "{0} answers already: another WireGuard runs under this name; stop it or choose another name"
    )]
    Answered(PathBuf),
    /// A file failed.
    #[error("{path}: {what}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl Runtime {
    /// Takes the name, or says who has it.
    pub(crate) fn claim(name: &str) -> Result<Runtime, RuntimeError> {
        Runtime::claim_in(Path::new(ROOT), name)
    }

    fn claim_in(root: &Path, name: &str) -> Result<Runtime, RuntimeError> {
        let directory = root.join(name);
        let path = directory.join("lock");
        loop {
            make_directory(root)?;
            make_directory(&directory)?;
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)
                .map_err(failed(&path, "open"))?;
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(
                |(_, error)| match error {
                    nix::errno::Errno::EWOULDBLOCK => RuntimeError::Running(name.to_owned()),
                    error => failed(&path, "lock")(error.into()),
                },
            )?;
            // The former owner removes the file before it lets go of the lock: a lock on a file
            // that is not there any more is worth nothing.
            let ours = fstat(&*lock).map_err(|error| failed(&path, "stat")(error.into()))?;
            if stat(&path)
                .is_ok_and(|there| there.st_ino == ours.st_ino && there.st_dev == ours.st_dev)
            {
                return Ok(Runtime {
                    name: name.to_owned(),
                    directory,
                    readers: readers(),
                    listens: Cell::new(false),
                    _lock: lock,
                });
            }
        }
    }

    /// The log of a gateway in the background.
    pub(crate) fn open_log(&self) -> Result<File, RuntimeError> {
        let path = self.directory.join("log");
        // What a gateway that failed left behind has been seen or never will be.
        let _ = fs::remove_file(&path);
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(&path)
            .map_err(failed(&path, "open"))
    }

    /// The log so far.
    pub(crate) fn read_log(&self) -> Option<String> {
        fs::read_to_string(self.directory.join("log")).ok()
    }

    /// Notes the supervisor's process id.
    pub(crate) fn write_pid(&self) -> Result<(), RuntimeError> {
        let path = self.directory.join("pid");
        fs::write(&path, format!("{}\n", std::process::id())).map_err(failed(&path, "write"))
    }

    /// The listener of `wg`.
    pub(crate) fn listen_uapi(&self) -> Result<UnixListener, RuntimeError> {
        make_directory(Path::new(UAPI))?;
        let listener = listen(&self.uapi_path(), 0o600)?;
        self.listens.set(true);
        Ok(listener)
    }

    /// The listener of the tools; the group may connect, and is told what it may do.
    pub(crate) fn listen_control(&self) -> Result<UnixListener, RuntimeError> {
        let path = self.directory.join("control.sock");
        let listener = listen(&path, 0o600)?;
        if let Some(group) = self.readers {
            chown(&path, None, Some(group)).map_err(failed(&path, "change of group"))?;
            fs::set_permissions(&path, Permissions::from_mode(0o660))
                .map_err(failed(&path, "change of mode"))?;
        }
        Ok(listener)
    }

    /// The group whose members may look.
    pub(crate) fn readers(&self) -> Option<u32> {
        self.readers
    }

    /// The gateway's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn uapi_path(&self) -> PathBuf {
        Path::new(UAPI).join(format!("{}.sock", self.name))
    }

    /// Removes the UAPI socket: `wg` no longer lists the interface.
    pub(crate) fn remove_uapi(&self) {
        if self.listens.take() {
            let _ = fs::remove_file(self.uapi_path());
        }
    }

    /// Removes every file; the log stays when `keep_log`, for whoever asks why it failed.
    pub(crate) fn remove(&self, keep_log: bool) {
        self.remove_uapi();
        for file in ["control.sock", "pid", cores::FILE, leftovers::FILE] {
            let _ = fs::remove_file(self.directory.join(file));
        }
        if !keep_log {
            let _ = fs::remove_file(self.directory.join("log"));
        }
        let _ = fs::remove_file(self.directory.join("lock"));
        // Not empty when the log stays; the parent not when another gateway runs.
        let _ = fs::remove_dir(&self.directory);
        if let Some(root) = self.directory.parent() {
            let _ = fs::remove_dir(root);
        }
    }
}

fn readers() -> Option<u32> {
    let group = nix::unistd::Group::from_name(GROUP).ok().flatten();
    group.map(|group| group.gid.as_raw())
}

fn failed<'a>(path: &'a Path, what: &'static str) -> impl Fn(io::Error) -> RuntimeError + 'a {
    move |error| RuntimeError::File {
        path: path.to_owned(),
        what,
        error,
    }
}

fn make_directory(path: &Path) -> Result<(), RuntimeError> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755))
            .map_err(failed(path, "change of mode")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                && path.parent().is_some_and(|up| !up.exists()) =>
        {
            fs::create_dir_all(path).map_err(failed(path, "make directory"))
        }
        Err(error) => Err(failed(path, "make directory")(error)),
    }
}

/// Listens at `path` with this mode from the first moment; a stale socket there is replaced.
fn listen(path: &Path, mode: u32) -> Result<UnixListener, RuntimeError> {
    if UnixStream::connect(path).is_ok() {
        return Err(RuntimeError::Answered(path.to_owned()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(path, "removal of a stale socket")(error));
        }
        _ => {}
    }
    let before = umask(Mode::from_bits_truncate(!mode & 0o777));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener.map_err(failed(path, "listen"))?;
    listener
        .set_nonblocking(true)
        .map_err(failed(path, "listen"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner() {
        let root = tempfile::tempdir().unwrap();
        let first = Runtime::claim_in(root.path(), "wg0").unwrap();
        let error = Runtime::claim_in(root.path(), "wg0").unwrap_err();
        assert!(error.to_string().starts_with("wg0 runs already"), "{error}");
        Runtime::claim_in(root.path(), "wg1").unwrap();
        first.remove(false);
        assert!(!root.path().join("wg0").exists());
        drop(first);
        Runtime::claim_in(root.path(), "wg0").unwrap();
    }

    #[test]
    fn what_a_killed_owner_left_is_taken_over() {
        let root = tempfile::tempdir().unwrap();
        drop(Runtime::claim_in(root.path(), "wg0").unwrap());
        let again = Runtime::claim_in(root.path(), "wg0").unwrap();
        again.write_pid().unwrap();
        again.remove(false);
        assert!(!root.path().join("wg0").exists());
    }

    #[test]
    fn a_socket_of_another_program_stays() {
        let root = tempfile::tempdir().unwrap();
        let name = format!("rs{}", std::process::id());
        let runtime = Runtime::claim_in(root.path(), &name).unwrap();
        make_directory(Path::new(UAPI)).unwrap();
        let theirs = UnixListener::bind(runtime.uapi_path()).unwrap();
        assert!(matches!(
            runtime.listen_uapi(),
            Err(RuntimeError::Answered(_))
        ));
        runtime.remove(false);
        assert!(runtime.uapi_path().exists());
        drop(theirs);
        runtime.listen_uapi().unwrap();
        runtime.remove(false);
        assert!(!runtime.uapi_path().exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.sock");
        drop(UnixListener::bind(&path).unwrap());
        let live = listen(&path, 0o600).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(matches!(
            listen(&path, 0o600),
            Err(RuntimeError::Answered(_))
        ));
        drop(live);
        listen(&path, 0o600).unwrap();
    }
}
