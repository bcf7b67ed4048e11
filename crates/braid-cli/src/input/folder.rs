//! Presents a folder or a single file as a tar archive in path order, generated while it is read.
//! Links are followed.

use std::{
    fs::{self, File},
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
};

const DEPTH_MAX: usize = 16;

pub struct FolderArchive {
    /// Remaining files, the last one first: path, and name in the archive.
    files: Vec<(PathBuf, String)>,
    now: Box<dyn Read + Send>,
}

impl FolderArchive {
    pub fn of_folder(folder: &Path) -> io::Result<FolderArchive> {
        let mut files = Vec::new();
        let name = folder.canonicalize()?.file_name().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
        gather(folder, &name, 0, &mut files)?;
        files.sort_by(|one, other| other.1.cmp(&one.1));
        Ok(FolderArchive { files, now: Box::new(io::empty()) })
    }

    pub fn of_file(path: &Path) -> io::Result<FolderArchive> {
        let path = path.canonicalize()?;
        let names: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned()).collect();
        let name = names.into_iter().rev().collect::<Vec<_>>().join("/");
        Ok(FolderArchive { files: vec![(path, name)], now: Box::new(io::empty()) })
    }

    fn next_member(path: &Path, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(|error| named(path, &error))?;
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes.as_slice()).map_err(|error| named(path, &error))?;
        // Cut the archive's end: more members follow.
        let mut member = builder.into_inner()?;
        member.truncate(member.len() - 1024);
        Ok(Box::new(Cursor::new(member)))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn gather(folder: &Path, name: &str, depth: usize, files: &mut Vec<(PathBuf, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder).map_err(|error| named(folder, &error))? {
        let entry = entry.map_err(|error| named(folder, &error))?;
        let path = entry.path();
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        let metadata = fs::metadata(&path).map_err(|error| named(&path, &error))?;
        if metadata.is_dir() && depth < DEPTH_MAX {
            gather(&path, &name, depth + 1, files)?;
        } else if metadata.is_file() {
            files.push((path, name));
        }
    }
    Ok(())
}

impl Read for FolderArchive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.now.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some((path, name)) = self.files.pop() else { return Ok(0) };
            self.now = FolderArchive::next_member(&path, &name)?;
        }
    }
}
