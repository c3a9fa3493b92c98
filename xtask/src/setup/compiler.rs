//! A rustc that can build `core` for BPF: it has core's source and the LLVM that bpf-linker speaks to.
//! Either a nightly of rustup with rust-src, or Debian's rustc-web and its source, unpacked into a folder of
//! this project: installed they would push out Debian's rustc and rustup.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{apt, begin, finish, say};
use crate::process;

/// The major version of LLVM that bpf-linker is built for: it loads the compiler's own.
const LLVM: u32 = 22;

/// The oldest minor version of rustc that builds this workspace (`rust-version`).
const OLDEST: u32 = 95;

/// Installed by rustup where Debian's packages are not to be had: a nightly of the same age as they are.
const NIGHTLY: &str = "nightly-2026-05-20";

/// The private folder's name.
const FOLDER: &str = "rustc-web";

/// Written last into the private folder. Another text: unpacked by another version of this program.
const STAMP: &str = "layout 1\n";

/// Debian's packages: the compiler, the source of core, the standard library for build scripts.
const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "libstd-rust-web-dev"];

/// A compiler fit for BPF.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// What to call it.
    pub(crate) name: String,
    /// rustc.
    pub(crate) rustc: PathBuf,
    /// Its cargo; the one in use if it has none.
    pub(crate) cargo: Option<PathBuf>,
    /// The folder of its libraries, LLVM among them.
    pub(crate) libraries: PathBuf,
}

/// The one that is there, if any.
pub(crate) fn find(folder: &Path) -> Option<Compiler> {
    nightly().or_else(|| private(&folder.join(FOLDER)))
}

/// Gets one.
pub(crate) fn install(folder: &Path) -> Result<Compiler> {
    let debian = if apt::exists() {
        match unpack_debian(folder) {
            Ok(()) => match private(&folder.join(FOLDER)) {
                Some(compiler) => return Ok(compiler),
                None => "the unpacked rustc-web does not run".to_owned(),
            },
            Err(error) => format!("Debian's rustc-web: {error:#}"),
        }
    } else {
        "no apt-get here for Debian's rustc-web".to_owned()
    };
    let rustup = if process::find("rustup").is_some() {
        match install_nightly() {
            Ok(()) => match nightly() {
                Some(compiler) => return Ok(compiler),
                None => format!("rustup's {NIGHTLY} came without a fit rust-src"),
            },
            Err(error) => format!("rustup: {error:#}"),
        }
    } else {
        "no rustup here".to_owned()
    };
    bail!(
        "no compiler for BPF ({debian}; {rustup}); install by hand: \
         rustup toolchain install {NIGHTLY} --profile minimal --component rust-src"
    )
}

/// The newest fit nightly of rustup.
fn nightly() -> Option<Compiler> {
    let home = env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".rustup")))?;
    let mut found: Vec<PathBuf> = home
        .join("toolchains")
        .read_dir()
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("nightly")))
        // rustup lists the component as installed where its files have been lost: look for the source.
        .filter(|path| has_source(path))
        .collect();
    found.sort();
    found.into_iter().rev().find_map(|toolchain| {
        let rustc = toolchain.join("bin/rustc");
        let version = Version::ask(&rustc)?;
        version.is_fit().then(|| Compiler {
            name: format!("rustc {} of rustup's {}", version.release, file_name(&toolchain)),
            cargo: Some(toolchain.join("bin/cargo")).filter(|cargo| cargo.exists()),
            libraries: toolchain.join("lib"),
            rustc,
        })
    })
}

/// Whether a sysroot holds the source of core.
fn has_source(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml").exists()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Debian's, in the private folder, if it is whole.
fn private(folder: &Path) -> Option<Compiler> {
    let stamp = fs::read_to_string(folder.join("stamp")).ok()?;
    let rustc = folder.join("bin/rustc");
    if !stamp.starts_with(STAMP) || !has_source(&folder.join("usr")) {
        return None;
    }
    let version = Version::ask(&rustc)?;
    version.is_fit().then(|| Compiler {
        name: format!("rustc {} of Debian's rustc-web, unpacked", version.release),
        rustc,
        cargo: None,
        libraries: folder.join("libraries"),
    })
}

fn install_nightly() -> Result<()> {
    say(&format!("rustup toolchain install {NIGHTLY} with rust-src"));
    let mut command = Command::new("rustup");
    command.args([
        "toolchain",
        "install",
        NIGHTLY,
        "--profile",
        "minimal",
        "--component",
        "rust-src",
    ]);
    command.arg("--no-self-update");
    process::read(&mut command).map(drop)
}

fn unpack_debian(folder: &Path) -> Result<()> {
    let unfinished = begin(folder, FOLDER)?;
    let debs = unfinished.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("making {}", debs.display()))?;

    let fetch = |lists: &apt::Lists| -> Result<Vec<PathBuf>> {
        let packages = packages(lists)?;
        say(&format!("downloading {} (140 MB)", packages.join(", ")));
        lists.download(&packages, &debs)
    };
    // The lists may know nothing yet, or name versions that the mirror no longer has.
    let files = match fetch(&apt::Lists::of_the_system()) {
        Ok(files) => files,
        Err(_) => fetch(&apt::Lists::fresh(&unfinished)?)?,
    };

    say(&format!("unpacking them into {} (900 MB)", folder.join(FOLDER).display()));
    let mut stamp = STAMP.to_owned();
    for file in &files {
        apt::unpack(file, &unfinished)?;
        stamp.push_str(&file_name(file));
        stamp.push('\n');
    }
    for done in [debs, unfinished.join("lists"), unfinished.join("cache")] {
        if done.exists() {
            fs::remove_dir_all(&done).with_context(|| format!("removing {}", done.display()))?;
        }
    }
    let libraries = library_folder(&unfinished.join("usr/lib"))?;
    std::os::unix::fs::symlink(Path::new("usr/lib").join(libraries), unfinished.join("libraries"))
        .context("linking the libraries")?;
    write_wrapper(&unfinished.join("bin"))?;
    fs::write(unfinished.join("stamp"), stamp).context("writing the stamp")?;

    // The loader's own words (a missing library) are better than "not fit".
    process::read(Command::new(unfinished.join("bin/rustc")).arg("--version"))?;
    finish(&unfinished).map(drop)
}

/// The packages to fetch: the three, the versioned library behind them, its LLVM, and what that LLVM needs
/// and this machine lacks.
fn packages(lists: &apt::Lists) -> Result<Vec<String>> {
    let named = |package: &str, start: &str| -> Result<String> {
        lists
            .dependencies(package)?
            .into_iter()
            .find(|name| name.starts_with(start))
            .with_context(|| format!("{package} depends on no {start}*"))
    };
    let library = named("libstd-rust-web-dev", "libstd-rust-web-")?;
    let llvm = named(&library, "libllvm")?;
    if llvm != format!("libllvm{LLVM}") {
        bail!("it has {llvm}, and bpf-linker needs LLVM {LLVM}");
    }
    let mut packages: Vec<String> = PACKAGES.map(str::to_owned).to_vec();
    packages.extend([library, llvm.clone()]);
    packages.extend(lists.would_install(&llvm)?.into_iter().filter(|name| *name != llvm));
    Ok(packages)
}

/// The folder of `usr/lib` that LLVM was unpacked into; its name depends on the machine.
fn library_folder(lib: &Path) -> Result<PathBuf> {
    for entry in lib.read_dir().with_context(|| format!("reading {}", lib.display()))? {
        let path = entry?.path();
        let has_llvm = |folder: std::fs::ReadDir| {
            folder.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libLLVM"))
        };
        if path.read_dir().is_ok_and(has_llvm) {
            return Ok(path.file_name().unwrap_or_default().into());
        }
    }
    bail!("no LLVM was unpacked into {}", lib.display())
}

/// The unpacked rustc looks for its libraries and its sysroot in /usr unless told otherwise.
const WRAPPER: &str = r#"#!/bin/sh
home=$(dirname "$(dirname "$(readlink -f "$0")")")
LD_LIBRARY_PATH="$home/libraries" exec "$home/usr/bin/rustc" --sysroot "$home/usr" "$@"
"#;

fn write_wrapper(bin: &Path) -> Result<()> {
    let path = bin.join("rustc");
    fs::create_dir_all(bin)
        .and_then(|()| fs::write(&path, WRAPPER))
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("writing {}", path.display()))
}

/// What `rustc -vV` says that matters here.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    release: String,
    minor: u32,
    llvm: u32,
}

impl Version {
    fn ask(rustc: &Path) -> Option<Version> {
        Version::parse(
            &process::read(Command::new(rustc).arg("-vV").env_remove("LD_LIBRARY_PATH")).ok()?,
        )
    }

    fn parse(text: &str) -> Option<Version> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let release = value("release: ")?.to_owned();
        let minor = release.strip_prefix("1.")?.split('.').next()?.parse().ok()?;
        let llvm = value("LLVM version: ")?.split('.').next()?.parse().ok()?;
        Some(Version { release, minor, llvm })
    }

    fn is_fit(&self) -> bool {
        self.minor >= OLDEST && self.llvm == LLVM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(release: &str, llvm: &str) -> Version {
        let text = format!(
            "rustc {release} (0)\nbinary: rustc\nrelease: {release}\nLLVM version: {llvm}\n"
        );
        Version::parse(&text).unwrap()
    }

    #[test]
    fn only_a_compiler_with_the_linkers_llvm_is_fit() {
        assert!(version("1.97.0-nightly", "22.1.4").is_fit());
        assert!(!version("1.99.0-nightly", "23.1.0").is_fit());
        assert!(!version("1.94.1", "22.1.0").is_fit());
        assert_eq!(Version::parse("rustc: error while loading shared libraries"), None);
    }

    #[test]
    fn a_folder_without_its_stamp_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let source = home.join("usr/lib/rustlib/src/rust/library/core");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("Cargo.toml"), "").unwrap();
        fs::create_dir_all(home.join("usr/bin")).unwrap();
        let fake = home.join("usr/bin/rustc");
        fs::write(&fake, "#!/bin/sh\nprintf 'release: 1.96.0\\nLLVM version: 22.1.8\\n'\n")
            .unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        write_wrapper(&home.join("bin")).unwrap();

        assert!(private(home).is_none(), "no stamp");
        fs::write(home.join("stamp"), "layout 0\n").unwrap();
        assert!(private(home).is_none(), "another layout");
        fs::write(home.join("stamp"), format!("{STAMP}rustc-web.deb\n")).unwrap();
        assert_eq!(private(home).unwrap().name, "rustc 1.96.0 of Debian's rustc-web, unpacked");
        fs::remove_dir_all(&source).unwrap();
        assert!(private(home).is_none(), "no source of core");
    }

    #[test]
    fn the_library_folder_is_the_one_with_llvm_whatever_the_machine() {
        let lib = tempfile::tempdir().unwrap();
        fs::create_dir_all(lib.path().join("rustlib")).unwrap();
        fs::create_dir_all(lib.path().join("aarch64-linux-gnu")).unwrap();
        assert!(library_folder(lib.path()).is_err());
        fs::write(lib.path().join("aarch64-linux-gnu/libLLVM.so.22.1"), "").unwrap();
        assert_eq!(library_folder(lib.path()).unwrap(), Path::new("aarch64-linux-gnu"));
    }
}
