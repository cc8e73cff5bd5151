//! Which file a gateway is started from, and what its interface is called.

use std::path::{Path, PathBuf};

use ringway_proto::config::valid_interface_name;

use crate::error::{Failure, Outcome};

/// Where a bare name is looked for.
pub(crate) const CONFIGURATION: &str = "/etc/ringway";

/// A configuration file and the interface that it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// The file.
    pub(crate) path: PathBuf,
    /// The interface's name.
    pub(crate) interface: String,
}

/// The file that `argument` of `ringway up` means; bare names are looked for in `directory`.
pub(crate) fn resolve(argument: &Path, directory: &Path) -> Outcome<Source> {
    let path = match bare_name(argument) {
        Some(name) => find(name, directory)?,
        None => argument.to_owned(),
    };
    let interface = interface_of(&path)?;
    Ok(Source { path, interface })
}

/// Refuses what can't be an interface's name: the rule of wg-quick(8).
pub(crate) fn check(name: &str) -> Result<(), String> {
    if valid_interface_name(name) {
        Ok(())
    } else {
        Err(format!(
            "{name:?} is no interface name: use 1 to 15 of the characters a-z A-Z 0-9 _ = + . -"
        ))
    }
}

/// `wg0`, but not `./wg0`, `wg0.conf` or `wg0.toml`.
fn bare_name(argument: &Path) -> Option<&str> {
    let text = argument.to_str()?;
    (!text.contains('/') && stem(text).is_none()).then_some(text)
}

fn find(name: &str, directory: &Path) -> Outcome<PathBuf> {
    check(name).map_err(Failure::Usage)?;
    let toml = directory.join(format!("{name}.toml"));
    let conf = directory.join(format!("{name}.conf"));
    match (toml.exists(), conf.exists()) {
        (true, true) => Err(Failure::Failed(format!(
            "{name}: both {} and {} exist: remove one, or name the file",
            toml.display(),
            conf.display()
        ))),
        (true, false) => Ok(toml),
        (false, true) => Ok(conf),
        (false, false) => Err(Failure::Failed(format!(
            "{name}: neither {} nor {} exists: write one, or give the path of a file",
            toml.display(),
            conf.display()
        ))),
    }
}

fn interface_of(path: &Path) -> Outcome<String> {
    let file = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some(stem) = stem(file) else {
        return Err(Failure::Usage(format!(
            "{}: a configuration's name ends with .conf or .toml: rename it to INTERFACE.conf or INTERFACE.toml",
            path.display()
        )));
    };
    check(stem).map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))?;
    Ok(stem.to_owned())
}

fn stem(file: &str) -> Option<&str> {
    file.strip_suffix(".conf")
        .or_else(|| file.strip_suffix(".toml"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_path_names_its_interface() {
        let nowhere = Path::new("/nonexistent");
        let source = resolve(Path::new("/x/office-1.conf"), nowhere).unwrap();
        assert_eq!(source.interface, "office-1");
        assert_eq!(source.path, Path::new("/x/office-1.conf"));
        assert_eq!(
            resolve(Path::new("wg0.toml"), nowhere).unwrap().path,
            Path::new("wg0.toml")
        );
    }

    #[test]
    fn bad_names_are_usage_errors() {
        let nowhere = Path::new("/nonexistent");
        for bad in [
            "/x/sixteen-letters-.conf",
            "/x/a b.conf",
            "/x/ü.conf",
            "/x/wg0.txt",
            "/x/.conf",
            "a b",
            "",
            "..",
        ] {
            let failure = resolve(Path::new(bad), nowhere).unwrap_err();
            assert_eq!(failure.code(), 2, "{bad}: {failure}");
        }
    }

    #[test]
    fn fifteen_characters_fit() {
        assert!(check("abcdefghijklmno").is_ok());
        assert!(check("abcdefghijklmnop").is_err());
        assert!(check("a_=+.-9").is_ok());
    }

    #[test]
    fn a_bare_name_is_toml_then_conf_and_never_both() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let none = resolve(Path::new("wg0"), path).unwrap_err();
        assert!(none.to_string().contains("neither"), "{none}");
        fs::write(path.join("wg0.conf"), "").unwrap();
        assert_eq!(
            resolve(Path::new("wg0"), path).unwrap().path,
            path.join("wg0.conf")
        );
        fs::write(path.join("wg0.toml"), "").unwrap();
        assert!(
            resolve(Path::new("wg0"), path)
                .unwrap_err()
                .to_string()
                .contains("both")
        );
        fs::remove_file(path.join("wg0.conf")).unwrap();
        assert_eq!(
            resolve(Path::new("wg0"), path).unwrap().path,
            path.join("wg0.toml")
        );
    }
}
