//! Files that a command writes beside its report: made for their owner only, and not over something else.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

/// Readable for its owner only: what we write says who speaks to whom.
const MODE: u32 = 0o600;

/// Creates the file. One that is there and holds something is left alone unless `force` says to replace it; a
/// device or a pipe is written to.
///
/// # Errors
/// If it is there, or the file system refuses.
pub(super) fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    let failed = || format!("cannot create {}", path.display());
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other.with_context(failed),
    }
    let file = options.open(path).with_context(failed)?;
    let old = file.metadata().with_context(failed)?;
    if old.is_file() {
        anyhow::ensure!(
            force || old.len() == 0,
            "{} exists; remove it, choose another name, or replace it with --force",
            path.display()
        );
        file.set_permissions(Permissions::from_mode(MODE)).with_context(failed)?;
        file.set_len(0).with_context(failed)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_there_stays_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        create(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "rows").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = create(&path, false).unwrap_err().to_string();
        assert!(error.ends_with("or replace it with --force"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "rows");
        create(&path, true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_device_is_written_to_and_a_missing_folder_is_named() {
        create(Path::new("/dev/null"), false).unwrap();
        let error = create(Path::new("/nowhere/log.csv"), false).unwrap_err().to_string();
        assert_eq!(error, "cannot create /nowhere/log.csv");
    }
}
