//! Splits a line into commands and words, and quotes words.
//!
//! Spaces and tabs separate words, `;` separates commands, and a word that begins with `#` begins a
//! comment. Single and double quotes group characters; adjacent groups are one word. A JSON array or
//! object at the start of a word is taken unchanged, with its quotes and spaces. A backslash has no
//! meaning here: it belongs to the text form of bytes, which the commands parse.
//!
//! [`quote`] writes any text as one word that both this and a POSIX shell read back.

use serde::de::IgnoredAny;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// A word with quotes is no option and no comment.
    pub is_quoted: bool,
    /// Its place in the line, in bytes.
    pub start: usize,
}

#[derive(Debug, Default)]
pub struct Line {
    /// The words of each command; only the last may be empty.
    pub commands: Vec<Vec<Word>>,
    /// The quote that is not closed.
    pub open_quote: Option<char>,
    /// The line ends within a word, or within its comment.
    pub ends_in_word: bool,
    pub ends_in_comment: bool,
}

pub fn split(line: &str) -> Line {
    let mut found = Line { commands: vec![Vec::new()], ..Line::default() };
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let start = line.len() - rest.len();
        match first {
            ' ' | '\t' | '\r' | '\n' => rest = &rest[1..],
            ';' => {
                found.commands.push(Vec::new());
                rest = &rest[1..];
            }
            '#' => {
                found.ends_in_comment = true;
                break;
            }
            _ => {
                let (word, length) = word_at(rest, start, &mut found.open_quote);
                found.ends_in_word = length == rest.len();
                if let Some(command) = found.commands.last_mut() {
                    command.push(word);
                }
                rest = &rest[length..];
            }
        }
    }
    let last = found.commands.len() - 1;
    let mut index = 0;
    found.commands.retain(|words| {
        index += 1;
        !words.is_empty() || index > last
    });
    found
}

fn word_at(rest: &str, start: usize, open_quote: &mut Option<char>) -> (Word, usize) {
    if let Some(length) = json_length(rest) {
        return (Word { text: rest[..length].to_owned(), is_quoted: true, start }, length);
    }
    let mut word = Word { text: String::new(), is_quoted: false, start };
    let mut quote = None;
    for (place, character) in rest.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.text.push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.is_quoted = true;
            }
            (None, ' ' | '\t' | '\r' | '\n' | ';') => return (word, place),
            (None, _) => word.text.push(character),
        }
    }
    *open_quote = quote;
    (word, rest.len())
}

/// Returns the length of a JSON array or object that is a whole word.
fn json_length(rest: &str) -> Option<usize> {
    if !rest.starts_with(['[', '{']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let length = values.byte_offset();
    let is_whole = rest[length..].chars().next().is_none_or(|next| matches!(next, ' ' | '\t' | '\r' | '\n' | ';'));
    is_whole.then_some(length)
}

/// Returns a word that [`split`] reads as `text`, and that is no option.
pub fn quote(text: &str) -> String {
    let line = split(text);
    let is_plain = match line.commands.as_slice() {
        [words] => matches!(words.as_slice(), [word] if word.text == text && !text.starts_with('-')),
        _ => false,
    };
    match is_plain && line.open_quote.is_none() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\"'\"'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::{KeyNotation, parse_key, show_key},
        text_form::{parse_text, to_text},
    };
    use proptest::prelude::*;

    fn texts(line: &str) -> Vec<Vec<String>> {
        split(line).commands.into_iter().map(|words| words.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn line_is_split_at_spaces_and_semicolons() {
        assert_eq!(texts("get a\tb"), [["get", "a", "b"]]);
        assert_eq!(texts(" get a ; ;put b c;"), [vec!["get", "a"], vec!["put", "b", "c"], vec![]]);
        assert_eq!(texts("get a # b; c"), [["get", "a"]]);
        assert_eq!(texts("get a#b '#c'"), [["get", "a#b", "#c"]]);
        assert_eq!(texts(""), [Vec::<String>::new()]);
        assert_eq!(texts("a\r\n"), [["a"]]);
    }

    #[test]
    fn quotes_group_characters() {
        assert_eq!(texts(r#"get 'a b' "c;d" e'f'"g" '' x\x20y"#), [["get", "a b", "c;d", "efg", "", "x\\x20y"]]);
        assert_eq!(texts(r#"'it'"'"'s'"#), [["it's"]]);
        assert_eq!(split("get 'a").open_quote, Some('\''));
        assert_eq!(split("get \"a' ").open_quote, Some('"'));
        assert_eq!(split("get 'a'").open_quote, None);
    }

    #[test]
    fn json_is_one_word() {
        assert_eq!(
            texts(r#"put ["pt", 7] {"a": "b;c"};x"#),
            [vec!["put", r#"["pt", 7]"#, r#"{"a": "b;c"}"#], vec!["x"]]
        );
        assert_eq!(texts("get [a b"), [["get", "[a", "b"]]);
        assert_eq!(texts("get [1]x"), [["get", "[1]x"]]);
    }

    #[test]
    fn quote_leaves_plain_words_unchanged() {
        for plain in ["a", "a\\x00b", "[1,2]", "{\"a\": 1}", "ä", "a#b"] {
            assert_eq!(quote(plain), plain);
        }
        for (text, quoted) in [("", "''"), ("a b", "'a b'"), ("it's", "'it'\"'\"'s'"), ("--x", "'--x'"), ("#", "'#'")] {
            assert_eq!(quote(text), quoted);
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let of_syntax = proptest::sample::select(b" \t\n;#'\"\\[]{}-,:x0\xff\xc3\xa9\x01".to_vec());
        proptest::collection::vec(prop_oneof![any::<u8>(), of_syntax], 0..24)
    }

    proptest! {
        /// A key as it is shown and quoted, typed again, is the same key.
        #[test]
        fn shown_and_quoted_bytes_round_trip(key in bytes(), value in bytes()) {
            for notation in [KeyNotation::Text, KeyNotation::Hex, KeyNotation::U64, KeyNotation::Tuple] {
                let line = format!("put {} {}", quote(&show_key(&key, notation)), quote(&to_text(&value)));
                let found = split(&line);
                prop_assert!(found.open_quote.is_none() && !found.ends_in_comment);
                let [words] = found.commands.as_slice() else { return Err(TestCaseError::fail(line)) };
                let [_, shown, text] = words.as_slice() else { return Err(TestCaseError::fail(line)) };
                prop_assert_eq!(&parse_key(&shown.text, notation).unwrap(), &key, "{}", line);
                prop_assert_eq!(&parse_text(&text.text).unwrap(), &value, "{}", line);
            }
        }

        #[test]
        fn any_text_quotes_to_one_word(text in ".{0,20}") {
            let line = quote(&text);
            let found = split(&line);
            prop_assert_eq!(found.commands.len(), 1);
            prop_assert_eq!(found.commands[0].len(), 1, "{}", line);
            prop_assert_eq!(&found.commands[0][0].text, &text);
        }
    }
}
