//! Reads configuration files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use super::error::Fault;
use super::{Config, ConfigError, Warning, parse_conf, parse_toml};

/// The longest file that is read.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A configuration and what a person should know about its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One line each.
    pub warnings: Vec<Warning>,
}

/// Reads `NAME.conf` or `NAME.toml`.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_with_warnings(path).map(|loaded| loaded.config)
}

/// Reads a file and tells what is doubtful about it too: as wg-quick, that everybody can read its keys.
pub fn load_with_warnings(path: &Path) -> Result<Loaded, ConfigError> {
    let bytes = read(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()]
            .split(|byte| *byte == b'\n')
            .count();
        Fault::new("not UTF-8", "save the file as UTF-8 text").at(path, line)
    })?;
    let mut loaded = parse(text, path)?;
    if has_secrets(&loaded.config) && world_accessible(path) {
        let fault = Fault::new(
            "the file holds keys and is world accessible",
            format!("run: chmod 600 {}", path.display()),
        );
        loaded.warnings.push(fault.warn(path, None));
    }
    Ok(loaded)
}

/// Reads text in the format that the name of `file` says.
pub fn parse(text: &str, file: &Path) -> Result<Loaded, ConfigError> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("conf") => parse_conf(text, file),
        Some("toml") => parse_toml(text, file),
        _ => Err(Fault::new(
            "unknown format",
            "name the file NAME.conf (as for wg-quick) or NAME.toml",
        )
        .of(file)),
    }
}

/// The name of the interface that a configuration file is for: the file's own without `.conf` or `.toml`.
pub fn interface_name(path: &Path) -> Result<String, ConfigError> {
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if valid_interface_name(&name) {
        return Ok(name);
    }
    let remedy = "name the file with 1 to 15 letters, digits and _ = + . -, then .conf or .toml";
    Err(Fault::new("bad interface name", remedy)
        .value(&name)
        .of(path))
}

/// Whether wg-quick and the kernel take this as an interface's name.
pub fn valid_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_=+.-".contains(&byte))
}

/// The whole file, wiped when dropped; never a device or a pipe that would not end.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let failed = |error: io::Error| {
        let (what, remedy) = match error.kind() {
            io::ErrorKind::NotFound => ("no such file", "check the name, or write it first"),
            io::ErrorKind::PermissionDenied => (
                "not readable",
                "run as root, or give yourself the right to read it",
            ),
            _ => {
                return Fault::new("cannot be read", "check the file")
                    .value(&error.to_string())
                    .of(path);
            }
        };
        Fault::new(what, remedy).of(path)
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Fault::new("not a regular file", "give the name of a file").of(path));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_long(path));
    }
    let file = fs::File::open(path).map_err(failed)?;
    // One byte of room more than there is, so that reading to the end moves nothing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_long(path));
    }
    Ok(bytes)
}

fn too_long(path: &Path) -> ConfigError {
    Fault::new(
        "file too long",
        format!("keep it below {} MiB", MAX_FILE_BYTES >> 20),
    )
    .of(path)
}

fn has_secrets(config: &Config) -> bool {
    config.interface.private_key.is_some()
        || config.peers.iter().any(|peer| peer.preshared_key.is_some())
}

/// As in wg-quick, a directory that others cannot enter protects its files.
#[cfg(unix)]
fn world_accessible(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    let bits = |path: &Path| {
        fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode() & 0o007)
    };
    let Ok(real) = path.canonicalize() else {
        return false;
    };
    bits(&real) & real.parent().map_or(0, bits) != 0
}

#[cfg(not(unix))]
fn world_accessible(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("ringway-load-{name}-{}", std::process::id()));
            create_dir_all(&path).unwrap();
            set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            Scratch(path)
        }

        fn file(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            write(&path, text).unwrap();
            set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = remove_dir_all(&self.0);
        }
    }

    const CONF: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

    #[test]
    fn a_file_is_read_by_its_ending() {
        let scratch = Scratch::new("ending");
        let conf = load(&scratch.file("wg0.conf", CONF, 0o600)).unwrap();
        let toml = "[interface]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n";
        assert_eq!(load(&scratch.file("wg0.toml", toml, 0o600)).unwrap(), conf);
        let other = load(&scratch.file("wg0.txt", CONF, 0o600))
            .unwrap_err()
            .to_string();
        assert!(
            other.ends_with(
                "wg0.txt: unknown format: name the file NAME.conf (as for wg-quick) or NAME.toml"
            ),
            "{other}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_in_one_line() {
        let scratch = Scratch::new("unreadable");
        let error = |path: &Path| load(path).unwrap_err().to_string();
        let missing = error(&scratch.0.join("none.conf"));
        assert!(
            missing.ends_with("none.conf: no such file: check the name, or write it first"),
            "{missing}"
        );
        assert!(error(&scratch.0).contains("not a regular file"));
        assert!(error(Path::new("/dev/zero")).contains("not a regular file"));
        let bytes = error(&scratch.file("b.conf", b"[Interface]\n# \xff\n", 0o600));
        assert!(
            bytes.ends_with("b.conf:2: not UTF-8: save the file as UTF-8 text"),
            "{bytes}"
        );
    }

    #[test]
    fn a_file_without_the_right_to_read_is_refused() {
        let scratch = Scratch::new("forbidden");
        let path = scratch.file("wg0.conf", CONF, 0o000);
        // Root reads everything; then there is nothing to see.
        if fs::File::open(&path).is_err() {
            assert!(
                load(&path)
                    .unwrap_err()
                    .to_string()
                    .contains("wg0.conf: not readable: run as root")
            );
        }
    }

    #[test]
    fn keys_that_everybody_can_read_are_told() {
        let scratch = Scratch::new("world");
        let warnings = |path: &Path| load_with_warnings(path).unwrap().warnings.len();
        let open = scratch.file("wg0.conf", CONF, 0o644);
        let told = load_with_warnings(&open).unwrap().warnings;
        assert!(
            told[0]
                .to_string()
                .contains("holds keys and is world accessible: run: chmod 600 "),
            "{}",
            told[0]
        );
        assert_eq!(warnings(&scratch.file("wg1.conf", CONF, 0o640)), 0);
        assert_eq!(
            warnings(&scratch.file("wg2.conf", "[Interface]\n", 0o644)),
            0
        );
        set_permissions(&scratch.0, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(warnings(&open), 0);
    }

    #[test]
    fn the_interface_is_named_by_the_file() {
        assert_eq!(
            interface_name(Path::new("/etc/ringway/wg0.conf")).unwrap(),
            "wg0"
        );
        assert_eq!(
            interface_name(Path::new("a.b-c_d=e+f.toml")).unwrap(),
            "a.b-c_d=e+f"
        );
        for path in ["/x/sixteen-letters-.conf", "a b.conf", ".conf/..", "ä.conf"] {
            assert!(interface_name(Path::new(path)).is_err(), "{path}");
        }
    }
}
