//! Output files: replaced as a whole, or written through.
//!
//! INVARIANT: after an error or a signal, a regular file or an unused name is unchanged. The
//! contents go to a temporary file in the same directory, which is synced, gets the old file's
//! mode, and is renamed at the end. A symbolic link's target is replaced; of hard links, only the
//! given name, because the other names may belong to a database. Pipes and devices are written
//! through.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Stdout, standard::note};
use crate::{
    exit::usage,
    interrupt,
    places::{check_output_file, check_parent},
};

const LINKS_MAX: usize = 40;

pub struct OutputFile {
    out: Out,
    shown: String,
    outlives_signals: bool,
}

enum Out {
    Stdout(Stdout),
    Through(File),
    Replacing(Replacement),
}

impl OutputFile {
    pub fn create(path: &Path) -> Result<OutputFile> {
        check_output_file(path, "the output")?;
        let shown = path.display().to_string();
        let out = open(path).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                check_parent(path)?;
            }
            Err(error).with_context(|| format!("cannot create {shown}"))
        })?;
        Ok(OutputFile { out, shown, outlives_signals: false })
    }

    /// Makes writes succeed after a signal too.
    pub fn outliving_signals(self) -> OutputFile {
        OutputFile { outlives_signals: true, ..self }
    }

    /// Opens an output that must not replace a file.
    pub fn create_new(path: &Path) -> Result<OutputFile> {
        let is_taken = |known: &Metadata| known.is_file() && !is_stdout(known);
        if path != Path::new("-") && fs::metadata(path).is_ok_and(|known| is_taken(&known)) {
            return Err(exists_already(&path.display().to_string()));
        }
        let mut output = OutputFile::create(path)?;
        if let Out::Replacing(replacement) = &mut output.out {
            replacement.is_of_new_file = true;
        }
        Ok(output)
    }

    /// Returns whether `path` stays unchanged until the output is finished.
    pub fn is_made_at_end(path: &Path) -> bool {
        let is_replaced = |known: &Metadata| known.is_file() && !is_stdout(known);
        path != Path::new("-") && fs::metadata(path).map_or(true, |known| is_replaced(&known))
    }

    pub fn is_standard(&self) -> bool {
        matches!(self.out, Out::Stdout(_))
    }

    pub fn is_terminal(&self) -> bool {
        match &self.out {
            #[expect(clippy::disallowed_methods, reason = "nothing is written to it")]
            Out::Stdout(_) => io::stdout().is_terminal(),
            Out::Through(file) => file.is_terminal(),
            Out::Replacing(_) => false,
        }
    }

    pub fn finish(self) -> Result<()> {
        let shown = self.shown;
        match self.out {
            Out::Stdout(out) => out.finish(),
            Out::Through(file) => sync_if_possible(&file).with_context(|| format!("cannot sync {shown}")),
            Out::Replacing(replacement) => replacement.finish(&shown),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.outlives_signals {
            interrupt::check_io()?;
        }
        let written = match &mut self.out {
            Out::Stdout(out) => return out.write(bytes),
            Out::Through(file) => file.write(bytes),
            Out::Replacing(replacement) => replacement.file.write(bytes),
        };
        written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to {}: {error}", self.shown)))
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Stdout(out) => out.flush(),
            Out::Through(_) | Out::Replacing(_) => Ok(()),
        }
    }
}

fn open(path: &Path) -> io::Result<Out> {
    if path == Path::new("-") {
        return Ok(Out::Stdout(Stdout::new()));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")),
        Ok(metadata) if is_stdout(&metadata) => Ok(Out::Stdout(Stdout::new())),
        Ok(metadata) if !metadata.is_file() => Ok(Out::Through(OpenOptions::new().write(true).open(path)?)),
        Ok(metadata) => Ok(Out::Replacing(Replacement::of(fs::canonicalize(path)?, Some(&metadata))?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Out::Replacing(Replacement::of(end_of_links(path)?, None)?))
        }
        Err(error) => Err(error),
    }
}

fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

#[cfg(unix)]
fn is_stdout(metadata: &Metadata) -> bool {
    use std::os::{fd::AsFd as _, unix::fs::MetadataExt as _};
    #[expect(clippy::disallowed_methods, reason = "only its descriptor is asked for")]
    let stdout = io::stdout();
    let stdout = stdout.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    stdout.is_ok_and(|stdout| (stdout.dev(), stdout.ino()) == (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn is_stdout(_: &Metadata) -> bool {
    false
}

/// Ignores errors of pipes and devices, some of which cannot be synced.
fn sync_if_possible(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => Err(error),
        _ => Ok(()),
    }
}

struct Replacement {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_done: bool,
    is_of_new_file: bool,
}

fn exists_already(shown: &str) -> anyhow::Error {
    usage(format!("{shown} exists already: name another file, or add --force to replace it"))
}

impl Replacement {
    fn of(path: PathBuf, old: Option<&Metadata>) -> io::Result<Replacement> {
        if old.is_some() {
            OpenOptions::new().write(true).open(&path)?;
        }
        let (file, temporary) = create_beside(&path, old.is_some())?;
        interrupt::add_temporary_file(temporary.clone());
        let replacement = Replacement { file, temporary, path, is_done: false, is_of_new_file: false };
        if let Some(old) = old {
            keep_owner(&replacement.file, old);
            replacement.file.set_permissions(old.permissions())?;
        }
        Ok(replacement)
    }

    fn finish(mut self, shown: &str) -> Result<()> {
        let failed = || format!("cannot finish {shown}");
        self.file.sync_all().with_context(failed)?;
        if self.is_of_new_file && fs::symlink_metadata(&self.path).is_ok() {
            return Err(exists_already(shown));
        }
        fs::rename(&self.temporary, &self.path).with_context(failed)?;
        self.is_done = true;
        sync_directory(&self.path).with_context(failed)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_done
            && let Err(error) = fs::remove_file(&self.temporary)
        {
            note!("braid: cannot remove {}: {error}", self.temporary.display());
        }
        interrupt::forget_temporary_file(&self.temporary);
    }
}

fn create_beside(path: &Path, has_old: bool) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?.to_string_lossy();
    // File names are limited to 255 bytes.
    let name: String = name.chars().take(50).collect();
    for attempt in 0..1000 {
        let temporary = path.with_file_name(format!(".{name}.{}-{attempt}.part", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if has_old {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        #[cfg(not(unix))]
        let _ = has_old;
        match options.open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a temporary file"))
}

/// Gives a file the owner of the old one (superuser only) or at least the group.
#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let _ = fchown(file, Some(old.uid()), Some(old.gid())).or_else(|_| fchown(file, None, Some(old.gid())));
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) {}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
