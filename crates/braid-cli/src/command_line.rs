//! Rebuilds the process's command line as shell text, with changes.

use std::path::{Path, PathBuf};

/// Returns the command line plus `--resume`. An existing `--rejects` file gets a new name, so as
/// not to be replaced.
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

/// Keeps the extension, which selects the compression.
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
    fn argument_with_special_characters_is_quoted() {
        assert_eq!(quoted("--key=a.b:u64"), "--key=a.b:u64");
        assert_eq!(quoted("my file's"), "'my file'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\\b"), "'a\\b'");
    }

    #[test]
    fn free_name_keeps_extension_and_skips_existing_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv.gz");
        assert_eq!(free_name(&path), folder.path().join("out.csv-2.gz"));
        std::fs::write(folder.path().join("out.csv-2.gz"), "").unwrap();
        assert_eq!(free_name(&path), folder.path().join("out.csv-3.gz"));
    }
}
