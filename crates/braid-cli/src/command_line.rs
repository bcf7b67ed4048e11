//! The command line that the process was started with, as text for a shell, to be given again with changes.

use std::path::{Path, PathBuf};

/// The present command line with `--resume`. `rejects` is the file of `--rejects`: where it is there already, another name
/// takes its place, since an import that goes on does not replace it.
pub fn with_resume(rejects: Option<&Path>) -> String {
    let arguments: Vec<String> = std::env::args_os().map(|text| text.to_string_lossy().into_owned()).collect();
    let renamed = rejects.filter(|path| path.is_file()).map(|path| (path.to_string_lossy(), free_name(path)));
    let mut line = Vec::new();
    let mut before = "";
    for argument in &arguments {
        let changed = renamed.as_ref().and_then(|(old, new)| {
            let new = new.to_string_lossy();
            if before == "--rejects" && *argument == **old {
                return Some(new.into_owned());
            }
            let value = argument.strip_prefix("--rejects=")?;
            (value == &**old).then(|| format!("--rejects={new}"))
        });
        line.push(quoted(changed.as_ref().unwrap_or(argument)));
        before = argument;
    }
    if !arguments.iter().any(|argument| argument == "--resume") {
        line.push("--resume".to_owned());
    }
    line.join(" ")
}

/// A name like this one that no file has. The ending stays: it says how the file is compressed.
fn free_name(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().map_or(String::new(), |ending| format!(".{}", ending.to_string_lossy()));
    let mut number = 2_u64;
    loop {
        let name = path.with_file_name(format!("{stem}-{number}{ending}"));
        if std::fs::symlink_metadata(&name).is_err() {
            return name;
        }
        number += 1;
    }
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=:,./@%".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(is_plain) {
        return argument.to_owned();
    }
    if cfg!(windows) {
        return format!("\"{}\"", argument.replace('"', "\\\""));
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::free_name;
    #[cfg(unix)]
    use super::quoted;

    #[cfg(unix)]
    #[test]
    fn argument_with_odd_characters_is_quoted_for_shells() {
        assert_eq!(quoted("--key=a.b:u64"), "--key=a.b:u64");
        assert_eq!(quoted("my file's"), "'my file'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\\b"), "'a\\b'");
    }

    #[test]
    fn free_name_keeps_ending_and_passes_over_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv.gz");
        assert_eq!(free_name(&path), folder.path().join("out.csv-2.gz"));
        std::fs::write(folder.path().join("out.csv-2.gz"), "").unwrap();
        assert_eq!(free_name(&path), folder.path().join("out.csv-3.gz"));
    }
}
