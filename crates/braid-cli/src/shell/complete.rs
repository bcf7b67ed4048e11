//! Completion of commands, options, trees, keys and names, and hints of the words that a command
//! takes.
//!
//! Keys come from a scan of the prefix, bounded by [`SCANNED_MAX`]. It reads outside the open
//! transaction, whose recorded reads would otherwise conflict.

use std::ops::Bound;

use anyhow::Result;
use clap::ValueEnum;

use super::{
    place::{Place, View},
    session::{NOW, Session},
    syntax::{Kind, SPECS, Spec, spec_of},
    words::{self, Word, quote},
};
use crate::{
    arguments::{InputFormat, KeyArguments, PairFormat, ValueFormat},
    commands::{KeyRange, NamedTree, RangeArguments, key_notation},
    notation::{KeyNotation, parse_name, show_key, show_name},
    text_form::parse_text,
};

/// Maximum candidates of each kind.
const CANDIDATES_MAX: usize = 50;

/// Maximum rows read for a completion.
const SCANNED_MAX: usize = 1000;

/// The word at the end of a line.
#[derive(Debug)]
struct Partial {
    text: String,
    start: usize,
    is_quoted: bool,
}

/// Returns the place where the candidates begin, and the candidates, quoted.
pub fn complete(session: &Session, line: &str) -> (usize, Vec<String>) {
    let found = words::split(line);
    let mut words = found.commands.into_iter().next_back().unwrap_or_default();
    if found.ends_in_comment {
        return (line.len(), Vec::new());
    }
    let partial = partial_of(line, &mut words, found.ends_in_word);
    let candidates = match words.first().map(|word| spec_of(&word.text)) {
        None => matching(&partial, SPECS.iter().map(|spec| spec.name.to_owned())),
        Some(None) => Vec::new(),
        Some(Some(spec)) => of_command(session, spec, &words[1..], &partial),
    };
    (partial.start, candidates.into_iter().map(|text| text + " ").collect())
}

/// Returns the words that a command takes, after its name.
pub fn hint(line: &str) -> Option<String> {
    let words = words::split(line).commands.into_iter().next_back()?;
    let [name] = words.as_slice() else { return None };
    let spec = spec_of(&name.text)?;
    let separator = if line.ends_with(' ') { "" } else { " " };
    (!spec.usage.is_empty()).then(|| format!("{separator}{}", spec.usage))
}

/// Takes the last word from the line, or an unfinished JSON array that the split has cut.
fn partial_of(line: &str, words: &mut Vec<Word>, ends_in_word: bool) -> Partial {
    let is_unfinished_json = |word: &Word| {
        let rest = &line[word.start..];
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(rest);
        rest.starts_with('[') && parsed.is_err_and(|error| error.is_eof())
    };
    if let Some(index) = words.iter().position(is_unfinished_json) {
        let start = words[index].start;
        words.truncate(index);
        return Partial { text: line[start..].replace(", ", ","), start, is_quoted: true };
    }
    match words.pop_if(|_| ends_in_word) {
        Some(word) => Partial { text: word.text, start: word.start, is_quoted: word.is_quoted },
        None => Partial { text: String::new(), start: line.len(), is_quoted: false },
    }
}

fn of_command(session: &Session, spec: &Spec, words: &[Word], partial: &Partial) -> Vec<String> {
    let mut given: Vec<&str> = Vec::new();
    let mut wanted = None;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let is_option = !word.is_quoted && word.text.starts_with("--");
        match spec.options.iter().find(|option| is_option && option.name == word.text) {
            Some(option) if option.value.is_some() => wanted = option.value.filter(|_| rest.next().is_none()),
            Some(_) => {}
            None => given.push(&word.text),
        }
    }
    let named = given.first().and_then(|text| parse_name(text).ok());
    let place = Completing { session, partial };
    if let Some(kind) = wanted {
        return place.of_kind(kind, named.as_deref());
    }
    if partial.text.starts_with("--") && !partial.is_quoted {
        return matching(partial, spec.options.iter().map(|option| option.name.to_owned()));
    }
    match (given.len(), spec.words.first(), spec.words.get(given.len())) {
        // The first word is a tree, or a key of the current one.
        (0, Some(Kind::Tree), _) => {
            let keys = if spec.words.len() > 1 { place.of_kind(Kind::Key, None) } else { Vec::new() };
            [place.of_kind(Kind::Tree, None), keys].concat()
        }
        (_, _, Some(kind)) => place.of_kind(*kind, named.as_deref()),
        (_, _, None) => Vec::new(),
    }
}

/// Returns the texts that begin as the word does, quoted.
fn matching(partial: &Partial, texts: impl Iterator<Item = String>) -> Vec<String> {
    texts.filter(|text| text.starts_with(&partial.text)).map(|text| unless_option(&text)).collect()
}

fn unless_option(text: &str) -> String {
    if text.starts_with("--") { text.to_owned() } else { quote(text) }
}

fn names<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

struct Completing<'a> {
    session: &'a Session,
    partial: &'a Partial,
}

impl Completing<'_> {
    fn of_kind(&self, kind: Kind, tree: Option<&str>) -> Vec<String> {
        let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect::<Vec<_>>();
        let texts = match kind {
            // A failed read completes nothing: the command itself reports it.
            Kind::Key => return self.keys(tree).unwrap_or_default(),
            Kind::Tree => {
                let trees = self.place().db.trees().unwrap_or_default();
                trees.iter().map(|tree| show_name(&tree.name)).take(SCANNED_MAX).collect()
            }
            Kind::Snapshot => owned(&mut self.session.snapshot_names().chain([NOW])),
            Kind::Savepoint => owned(&mut self.session.savepoint_names()),
            Kind::Command => owned(&mut SPECS.iter().map(|spec| spec.name)),
            Kind::Notation => names::<KeyNotation>(),
            Kind::InputFormat => names::<InputFormat>(),
            Kind::ValueFormat => names::<ValueFormat>(),
            Kind::PairFormat => names::<PairFormat>(),
            Kind::Text | Kind::Number => Vec::new(),
        };
        matching(self.partial, texts.into_iter())
    }

    fn place(&self) -> Place<'_> {
        let place = self.session.place();
        let view = match place.view {
            View::Transaction(_) => View::Latest,
            other => other,
        };
        Place { view, ..place }
    }

    fn keys(&self, tree: Option<&str>) -> Result<Vec<String>> {
        let Some(name) = tree.or(self.session.current_tree()) else { return Ok(Vec::new()) };
        let place = self.place();
        let Some(tree) = NamedTree::find(&place.db, name)? else { return Ok(Vec::new()) };
        let notation = key_notation(&place.db, name, KeyArguments::default())?;
        let mut found: Vec<String> = Vec::new();
        for range in ranges(&self.partial.text, notation)? {
            for row in place.rows(&tree, range).take(SCANNED_MAX) {
                let shown = show_key(&row?.0, notation);
                // Of a multi-value tree, each key once.
                if shown.starts_with(&self.partial.text) && found.last() != Some(&shown) {
                    found.push(shown);
                }
                if found.len() == CANDIDATES_MAX {
                    break;
                }
            }
        }
        Ok(found.iter().map(|key| quote(key)).collect())
    }
}

/// Returns ranges with all keys whose notation begins with `partial`, and perhaps others.
fn ranges(partial: &str, notation: KeyNotation) -> Result<Vec<KeyRange>> {
    let prefix_of = |text: &str| {
        RangeArguments { from: None, to: None, prefix: Some(text.to_owned()) }.keys(notation).map(|range| vec![range])
    };
    match notation {
        KeyNotation::U64 if !partial.is_empty() && !partial.starts_with('\\') => {
            let Ok(number) = partial.parse::<u64>() else { return Ok(Vec::new()) };
            Ok(numbers_beginning_with(number))
        }
        // The range of the empty text in u64: all keys.
        KeyNotation::U64 if partial.is_empty() => Ok(vec![(Bound::Unbounded, Bound::Unbounded)]),
        KeyNotation::Text | KeyNotation::U64 => prefix_of(without_cut_escape(partial)),
        KeyNotation::Hex => prefix_of(&partial[..partial.len() & !1]),
        KeyNotation::Tuple => {
            let commas = partial.rmatch_indices(',').map(|(place, _)| format!("{}]", &partial[..place]));
            for elements in commas.chain(["[]".to_owned()]) {
                if let Ok(range) = prefix_of(&elements) {
                    return Ok(range);
                }
            }
            Ok(Vec::new())
        }
    }
}

/// Returns the ranges of numbers whose decimal digits begin with those of `number`.
fn numbers_beginning_with(number: u64) -> Vec<KeyRange> {
    let bytes = |number: u64| number.to_be_bytes().to_vec();
    let mut found = Vec::new();
    let mut scale = 1_u64;
    while let Some(first) = number.checked_mul(scale) {
        let last = first.saturating_add(scale - 1);
        found.push((Bound::Included(bytes(first)), Bound::Included(bytes(last))));
        match scale.checked_mul(10) {
            Some(next) if number > 0 => scale = next,
            _ => break,
        }
    }
    found
}

/// Cuts an escape that is not complete: `\`, `\x` or `\x4`.
fn without_cut_escape(text: &str) -> &str {
    let cuts = (0..=3).filter_map(|cut| text.get(..text.len().checked_sub(cut)?));
    cuts.into_iter().find(|text| parse_text(text).is_ok()).unwrap_or(text)
}
