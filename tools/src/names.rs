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
        Some(name) => find(name, directory, Path::new(""))?,
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

/// Refuses what can't be a gateway's name, and says which one a path to its file means.
pub(crate) fn gateway(text: &str) -> Outcome {
    check(text).map_err(|why| match gateway_of(text) {
        Some(name) => Failure::Usage(format!(
            "{text}: give the gateway's name, not its file: {name}"
        )),
        None => Failure::Usage(why),
    })
}

/// The gateway that a configuration file is for.
pub(crate) fn gateway_of(file: &str) -> Option<&str> {
    stem(file.rsplit('/').next()?).filter(|name| valid_interface_name(name))
}

/// `wg0`, but not `./wg0`, `wg0.conf` or `wg0.toml`.
fn bare_name(argument: &Path) -> Option<&str> {
    let text = argument.to_str()?;
    (!text.contains('/') && stem(text).is_none()).then_some(text)
}

fn find(name: &str, directory: &Path, here: &Path) -> Outcome<PathBuf> {
    let file = here.join(name);
    let is_file = file.is_file();
    if is_file && check(name).is_err() {
        return Ok(file);
    }
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
        // As with a path: what is wrong is the end of its name.
        (false, false) if is_file => Ok(file),
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
    fn a_file_in_place_of_a_gateway_is_told_its_name() {
        for file in ["./office-1.conf", "/x/office-1.toml"] {
            let failure = gateway(file).unwrap_err();
            assert_eq!(failure.code(), 2);
            assert!(
                failure.to_string().ends_with("not its file: office-1"),
                "{failure}"
            );
        }
        assert!(
            gateway("office.conf").is_ok(),
            "an interface may be called so"
        );
        assert!(
            gateway("../..")
                .unwrap_err()
                .to_string()
                .contains("no interface name")
        );
    }

    #[test]
    fn a_file_that_is_there_counts_as_a_path() {
        let (empty, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for file in ["nux.txt", "a-name-that-is-far-too-long.txt"] {
            assert!(find(file, empty.path(), here.path()).is_err());
            fs::write(here.path().join(file), "").unwrap();
            let path = find(file, empty.path(), here.path()).unwrap();
            let failure = interface_of(&path).unwrap_err();
            assert!(
                failure.to_string().contains("ends with .conf or .toml"),
                "{failure}"
            );
        }
        fs::write(empty.path().join("nux.txt.conf"), "").unwrap();
        let found = find("nux.txt", empty.path(), here.path()).unwrap();
        assert_eq!(found, empty.path().join("nux.txt.conf"));
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
