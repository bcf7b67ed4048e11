use super::sample::Random;
use std::{collections::BTreeMap, path::PathBuf};

pub type Files = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Flip,
    Zero,
    Swap,
    Cut,
    Gone,
    Manifest,
    Current,
    Mixed,
    Several,
}

pub const WAYS: [Way; 9] =
    [Way::Flip, Way::Zero, Way::Swap, Way::Cut, Way::Gone, Way::Manifest, Way::Current, Way::Mixed, Way::Several];

fn any(files: &Files, random: &mut Random) -> PathBuf {
    let names: Vec<&PathBuf> = files.keys().filter(|path| path.file_name().is_none_or(|name| name != "LOCK")).collect();
    names[random.below(names.len() as u64) as usize].clone()
}

/// `other`: of another database.
pub fn damage(files: &mut Files, other: &Files, way: Way, random: &mut Random) -> String {
    match way {
        Way::Manifest | Way::Current => {
            let part = if way == Way::Manifest { "MANIFEST-" } else { "CURRENT" };
            let is_it = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(part));
            let path = files.keys().rfind(is_it).unwrap().clone();
            harm(files, &path, [Way::Flip, Way::Zero, Way::Cut, Way::Gone][random.below(4) as usize], random)
        }
        Way::Mixed => {
            let mut done = Vec::new();
            for (path, bytes) in other {
                let is_new = !files.contains_key(path);
                if path.extension().is_some() && random.below(2) == 0 && (is_new || random.below(6) == 0) {
                    files.insert(path.clone(), bytes.clone());
                    done.push(path.display().to_string());
                }
            }
            format!("another database's {}", done.join(", "))
        }
        Way::Several => {
            let ways = [Way::Flip, Way::Zero, Way::Swap, Way::Cut, Way::Gone, Way::Manifest, Way::Mixed];
            let mut done = Vec::new();
            for _ in 0..2 + random.below(4) {
                let way = ways[random.below(ways.len() as u64) as usize];
                let has_manifest = files.keys().any(|path| path.to_string_lossy().contains("MANIFEST"));
                if way != Way::Manifest || has_manifest {
                    done.push(damage(files, other, way, random));
                }
            }
            done.join("; ")
        }
        way => {
            let path = any(files, random);
            harm(files, &path, way, random)
        }
    }
}

pub fn harm(files: &mut Files, path: &PathBuf, way: Way, random: &mut Random) -> String {
    let mut bytes = files.remove(path).unwrap_or_default();
    let len = bytes.len() as u64;
    let name = path.display();
    let done = match way {
        Way::Gone => return format!("{name} is gone"),
        Way::Flip => {
            let mut places = Vec::new();
            for _ in 0..1 + random.below(3) {
                let at = random.below(len);
                if let Some(byte) = bytes.get_mut(at as usize) {
                    *byte ^= 1 << random.below(8);
                }
                places.push(at);
            }
            format!("{name}: bits at {places:?}")
        }
        Way::Cut => {
            let to = random.below(len);
            bytes.truncate(to as usize);
            format!("{name}: cut from {len} to {to}")
        }
        _ => {
            let page = [512, 4096][random.below(2) as usize];
            let pages = len.div_ceil(page);
            let (one, two) = (random.below(pages) * page, random.below(pages) * page);
            let range = |at: u64| at as usize..(at + page).min(len) as usize;
            if way == Way::Zero {
                bytes[range(one)].fill(0);
                format!("{name}: zeros at {:?}", range(one))
            } else {
                let (first, second) = (bytes[range(one)].to_vec(), bytes[range(two)].to_vec());
                let short = first.len().min(second.len());
                bytes[range(one)][..short].copy_from_slice(&second[..short]);
                bytes[range(two)][..short].copy_from_slice(&first[..short]);
                format!("{name}: pages at {one} and {two} swapped")
            }
        }
    };
    files.insert(path.clone(), bytes);
    done
}
