//! Configuration files: read and checked, or replaced atomically.

use ringway_proto::config::{self, Config};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Reads a configuration; the error is one line with file, line, value and remedy.
pub(crate) fn read_config(path: &Path) -> Result<Config, String> {
    config::load(path).map_err(|error| error.to_string())
}

/// Replaces `path` by `contents`: who reads it sees the old text or the new one, also after a power
/// failure. A private key is inside, so group and others get no access.
pub(crate) fn write_config(path: &Path, contents: &str) -> Result<(), String> {
    replace(path, contents.as_bytes()).map_err(|error| {
        format!(
            "cannot write {}: {error}: the old file is as it was",
            path.display()
        )
    })
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    // A link is followed, so that it stays one.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mode = match fs::metadata(&target) {
        Ok(metadata) => metadata.permissions().mode() & 0o600,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0o600,
        Err(error) => return Err(error),
    };
    let temporary = beside(&target)?;
    // Left over from a crash: our own pid's name, so nobody else is writing it.
    let _ = fs::remove_file(&temporary);
    let written = write_new(&temporary, contents, mode)
        .and_then(|()| fs::rename(&temporary, &target))
        .and_then(|()| sync_folder(&target));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// A hidden name in the same folder, since only within one file system a rename is atomic.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(target.with_file_name(hidden))
}

fn sync_folder(target: &Path) -> io::Result<()> {
    match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_through_a_link_and_keeps_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gw.conf");
        let link = folder.path().join("link.conf");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_config(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(
            fs::symlink_metadata(&link)
                .unwrap()
                .file_type()
                .is_symlink()
        );
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "no temporary file stays"
        );
    }

    #[test]
    fn a_failure_names_the_file() {
        let error = write_config(Path::new("/nonexistent/gw.conf"), "x").unwrap_err();
        assert!(error.contains("/nonexistent/gw.conf"), "{error}");
    }
}
