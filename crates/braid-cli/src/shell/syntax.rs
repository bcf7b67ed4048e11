//! The commands of the shell: one table for the parser, the help and the completion.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::ValueEnum;

use super::words::Word;
use crate::{
    arguments::{InputFormat, PairFormat, ValueFormat},
    commands::RangeArguments,
    exit::usage,
    notation::{KeyNotation, parse_name, parse_ttl},
};

/// Kind of a word or of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tree,
    Key,
    Text,
    Number,
    Notation,
    InputFormat,
    ValueFormat,
    PairFormat,
    Snapshot,
    Savepoint,
    Command,
}

#[derive(Debug)]
pub struct OptionSpec {
    pub name: &'static str,
    pub value: Option<Kind>,
    pub summary: &'static str,
}

#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    pub usage: &'static str,
    pub summary: &'static str,
    /// The words after the name. A leading tree may be absent.
    pub words: &'static [Kind],
    pub options: &'static [OptionSpec],
}

const fn flag(name: &'static str, summary: &'static str) -> OptionSpec {
    OptionSpec { name, value: None, summary }
}

const fn value(name: &'static str, kind: Kind, summary: &'static str) -> OptionSpec {
    OptionSpec { name, value: Some(kind), summary }
}

const FROM: OptionSpec = value("--from", Kind::Key, "start at this key");
const TO: OptionSpec = value("--to", Kind::Key, "end before this key");
const PREFIX: OptionSpec = value("--prefix", Kind::Key, "only keys with this prefix");
const KEYS: OptionSpec = value("--keys", Kind::Notation, "notation of keys: text, hex, u64 or tuple");
const JSON: OptionSpec = flag("--json", "print JSON");

pub const SPECS: &[Spec] = &[
    Spec {
        name: "get",
        usage: "[TREE] KEY",
        summary: "print the value of a key (all values, in a multi-value tree)",
        words: &[Kind::Tree, Kind::Key],
        options: &[KEYS, value("--format", Kind::ValueFormat, "text, hex, raw or json"), JSON],
    },
    Spec {
        name: "put",
        usage: "[TREE] KEY VALUE",
        summary: "store a value (add one, in a multi-value tree)",
        words: &[Kind::Tree, Kind::Key, Kind::Text],
        options: &[
            KEYS,
            value("--format", Kind::InputFormat, "format of the given value: text, hex or raw"),
            value("--ttl", Kind::Number, "expire the value after this number of seconds"),
            JSON,
        ],
    },
    Spec {
        name: "del",
        usage: "[TREE] KEY",
        summary: "delete a key, or with --from, --to or --prefix a range",
        words: &[Kind::Tree, Kind::Key],
        options: &[
            FROM,
            TO,
            PREFIX,
            value("--value", Kind::Text, "in a multi-value tree: the value to remove"),
            KEYS,
            JSON,
        ],
    },
    Spec {
        name: "scan",
        usage: "[TREE]",
        summary: "print keys and values in order",
        words: &[Kind::Tree],
        options: &[
            FROM,
            TO,
            PREFIX,
            flag("--reverse", "from last to first"),
            value("--limit", Kind::Number, "maximum number of records"),
            value("--format", Kind::PairFormat, "text, hex, json or jsonl"),
            KEYS,
            JSON,
        ],
    },
    Spec {
        name: "count",
        usage: "[TREE]",
        summary: "count records",
        words: &[Kind::Tree],
        options: &[FROM, TO, PREFIX, KEYS, JSON],
    },
    Spec {
        name: "ttl",
        usage: "[TREE] KEY",
        summary: "print when a value expires, in UTC, or `never`",
        words: &[Kind::Tree, Kind::Key],
        options: &[KEYS, JSON],
    },
    Spec {
        name: "explain",
        usage: "[TREE] KEY",
        summary: "show what a get of a key reads, and the time of each step",
        words: &[Kind::Tree, Kind::Key],
        options: &[KEYS, value("--repeat", Kind::Number, "get this often first: the last get is shown"), JSON],
    },
    Spec { name: "trees", usage: "", summary: "list the trees", words: &[], options: &[JSON] },
    Spec {
        name: "use",
        usage: "[TREE]",
        summary: "set the current tree, or print it",
        words: &[Kind::Tree],
        options: &[
            flag("--create", "create the tree if it is absent"),
            flag("--multi", "with --create: a multi-value tree"),
            value("--keys", Kind::Notation, "with --create: notation of its keys, text or u64"),
        ],
    },
    Spec {
        name: "begin",
        usage: "",
        summary: "begin a transaction",
        words: &[],
        options: &[flag("--exclusive", "other commits wait, so that it cannot conflict")],
    },
    Spec { name: "commit", usage: "", summary: "commit the transaction", words: &[], options: &[JSON] },
    Spec {
        name: "rollback",
        usage: "[SAVEPOINT]",
        summary: "discard the transaction, or its writes since a savepoint",
        words: &[Kind::Savepoint],
        options: &[],
    },
    Spec {
        name: "savepoint",
        usage: "NAME",
        summary: "name this place in the transaction",
        words: &[Kind::Savepoint],
        options: &[],
    },
    Spec {
        name: "snapshot",
        usage: "NAME",
        summary: "keep the present state under a name",
        words: &[Kind::Snapshot],
        options: &[],
    },
    Spec { name: "snapshots", usage: "", summary: "list the snapshots", words: &[], options: &[JSON] },
    Spec {
        name: "at",
        usage: "NAME|now",
        summary: "read from a snapshot, or from the latest state again",
        words: &[Kind::Snapshot],
        options: &[],
    },
    Spec { name: "release", usage: "NAME", summary: "release a snapshot", words: &[Kind::Snapshot], options: &[] },
    Spec {
        name: "stats",
        usage: "",
        summary: "show sizes and counters, as `braid stats`",
        words: &[],
        options: &[flag("--partitions", "draw all partitions"), flag("--trees", "show all trees"), JSON],
    },
    Spec { name: "help", usage: "[COMMAND]", summary: "describe the commands", words: &[Kind::Command], options: &[] },
    Spec { name: "quit", usage: "", summary: "end the shell", words: &[], options: &[] },
];

pub fn spec_of(name: &str) -> Option<&'static Spec> {
    SPECS.iter().find(|spec| spec.name == name)
}

/// A tree, by default the current one, and a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Point {
    pub tree: Option<String>,
    pub key: String,
    pub keys: Option<KeyNotation>,
}

#[derive(Debug)]
pub struct Span {
    pub tree: Option<String>,
    pub range: RangeArguments,
    pub keys: Option<KeyNotation>,
}

#[derive(Debug)]
pub enum Statement {
    Get { at: Point, format: Option<ValueFormat> },
    Ttl { at: Point, is_json: bool },
    Put { at: Point, value: String, format: InputFormat, ttl: Option<u64>, is_json: bool },
    Del { at: Point, value: Option<String>, is_json: bool },
    DelRange { span: Span, is_json: bool },
    Scan { span: Span, is_reverse: bool, limit: u64, format: Option<PairFormat> },
    Count { span: Span, is_json: bool },
    Explain { at: Point, repeat: u64, is_json: bool },
    Trees { is_json: bool },
    Use { tree: Option<String>, create: bool, multi: bool, keys: Option<KeyNotation> },
    Begin { is_exclusive: bool },
    Commit { is_json: bool },
    Rollback { savepoint: Option<String> },
    Savepoint(String),
    Snapshot(String),
    Snapshots { is_json: bool },
    At(String),
    Release(String),
    Stats { partitions: bool, trees: bool, is_json: bool },
    Help(Option<String>),
    Quit,
}

/// Parses a command of at least one word.
pub fn parse(words: &[Word]) -> Result<Statement> {
    let name = words.first().map(|word| word.text.as_str()).unwrap_or_default();
    let name = if name == "exit" { "quit" } else { name };
    let spec =
        spec_of(name).ok_or_else(|| usage(format!("there is no command {name:?}: `help` lists the commands")))?;
    statement(spec, Given::read(spec, words.get(1..).unwrap_or_default())?)
}

fn statement(spec: &'static Spec, mut given: Given) -> Result<Statement> {
    let is_json = given.has("--json");
    Ok(match spec.name {
        "get" => Statement::Get {
            format: given.choice("--format")?.or(is_json.then_some(ValueFormat::Json)),
            at: given.point()?,
        },
        "ttl" => Statement::Ttl { at: given.point()?, is_json },
        "put" => {
            let value = given.last("VALUE")?;
            let format = given.choice("--format")?.unwrap_or(InputFormat::Text);
            let ttl = given.text("--ttl").map(|text| parse_ttl(&text)).transpose();
            let ttl = ttl.map_err(|why| usage(format!("--ttl {why}")))?;
            Statement::Put { ttl, at: given.point()?, value, format, is_json }
        }
        "del" if ["--from", "--to", "--prefix"].iter().any(|name| given.has(name)) => {
            given.refuse("--value", "--value needs a key: give one, or omit --value")?;
            Statement::DelRange { span: given.span()?, is_json }
        }
        "del" => Statement::Del { value: given.text("--value"), at: given.point()?, is_json },
        "scan" => Statement::Scan {
            is_reverse: given.has("--reverse"),
            limit: given.number("--limit")?.unwrap_or(u64::MAX),
            format: given.choice("--format")?.or(is_json.then_some(PairFormat::Json)),
            span: given.span()?,
        },
        "count" => Statement::Count { span: given.span()?, is_json },
        "explain" => {
            let repeat = given.number("--repeat")?.unwrap_or(1);
            if repeat == 0 {
                return Err(usage("--repeat 0: give 1 or more"));
            }
            Statement::Explain { at: given.point()?, repeat, is_json }
        }
        "trees" => Statement::Trees { is_json },
        "use" => {
            let (create, multi, keys) = (given.has("--create"), given.has("--multi"), given.choice("--keys")?);
            if !create && (multi || keys.is_some()) {
                return Err(usage("--multi and --keys need --create"));
            }
            Statement::Use { tree: given.next_name()?, create, multi, keys }
        }
        "begin" => Statement::Begin { is_exclusive: given.has("--exclusive") },
        "commit" => Statement::Commit { is_json },
        "rollback" => Statement::Rollback { savepoint: given.next() },
        "savepoint" => Statement::Savepoint(given.required("NAME")?),
        "snapshot" => Statement::Snapshot(given.required("NAME")?),
        "snapshots" => Statement::Snapshots { is_json },
        "at" => Statement::At(given.required("NAME")?),
        "release" => Statement::Release(given.required("NAME")?),
        "stats" => Statement::Stats { partitions: given.has("--partitions"), trees: given.has("--trees"), is_json },
        "help" => Statement::Help(given.next()),
        _ => Statement::Quit,
    })
}

/// The words and options of a command.
struct Given {
    spec: &'static Spec,
    words: Vec<String>,
    options: BTreeMap<&'static str, String>,
}

impl Given {
    fn read(spec: &'static Spec, words: &[Word]) -> Result<Given> {
        let mut given = Given { spec, words: Vec::new(), options: BTreeMap::new() };
        let mut rest = words.iter();
        let mut takes_options = true;
        while let Some(word) = rest.next() {
            if word.is_quoted || !takes_options || !word.text.starts_with("--") {
                given.words.push(word.text.clone());
                continue;
            }
            if word.text == "--" {
                takes_options = false;
                continue;
            }
            let (name, attached) = match word.text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.text.as_str(), None),
            };
            let option = spec.options.iter().find(|option| option.name == name);
            let option = option.ok_or_else(|| {
                usage(format!("{} has no option {name}; quote a word that is none: '{name}'", spec.name))
            })?;
            let value = match (option.value, attached) {
                (None, None) => String::new(),
                (None, Some(_)) => return Err(usage(format!("{name} takes no value"))),
                (Some(_), Some(value)) => value,
                (Some(_), None) => {
                    rest.next().map(|word| word.text.clone()).ok_or_else(|| usage(format!("{name} needs a value")))?
                }
            };
            if given.options.insert(option.name, value).is_some() {
                return Err(usage(format!("{name} is given twice")));
            }
        }
        if given.words.len() > spec.words.len() {
            return Err(given.wrong("has more words than that"));
        }
        Ok(given)
    }

    fn wrong(&self, what: &str) -> anyhow::Error {
        let Spec { name, usage: words, .. } = self.spec;
        let form = format!("{name} {words}");
        usage(format!("the command {what}: write `{}`; `help {name}` describes it", form.trim_end()))
    }

    fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.options.get(name).cloned()
    }

    fn refuse(&self, name: &str, why: &str) -> Result<()> {
        if self.has(name) { Err(usage(why)) } else { Ok(()) }
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| usage(format!("{name} {text}: give a number")))
    }

    fn choice<T: ValueEnum>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        self.refuse_both(name)?;
        let names = || T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        T::from_str(&text, false).map(Some).map_err(|_| {
            let names: Vec<String> = names().map(|value| value.get_name().to_owned()).collect();
            usage(format!("{name} {text}: give {}", names.join(", ")))
        })
    }

    fn refuse_both(&self, name: &str) -> Result<()> {
        match name == "--format" && self.has("--json") && self.spec.name != "put" {
            true => Err(usage("--format and --json exclude each other")),
            false => Ok(()),
        }
    }

    fn next(&mut self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    fn required(&mut self, what: &str) -> Result<String> {
        self.next().ok_or_else(|| self.wrong(&format!("needs a {what}")))
    }

    fn last(&mut self, what: &str) -> Result<String> {
        self.words.pop().ok_or_else(|| self.wrong(&format!("needs a {what}")))
    }

    fn next_name(&mut self) -> Result<Option<String>> {
        self.next().map(|text| parse_name(&text).map_err(usage)).transpose()
    }

    fn point(&mut self) -> Result<Point> {
        let key = self.last("KEY")?;
        Ok(Point { tree: self.next_name()?, key, keys: self.choice("--keys")? })
    }

    fn span(&mut self) -> Result<Span> {
        if self.words.len() > 1 {
            return Err(self.wrong("takes a KEY or a range, not both"));
        }
        let range = RangeArguments { from: self.text("--from"), to: self.text("--to"), prefix: self.text("--prefix") };
        if range.prefix.is_some() && (range.from.is_some() || range.to.is_some()) {
            return Err(usage("--prefix excludes --from and --to"));
        }
        Ok(Span { tree: self.next_name()?, range, keys: self.choice("--keys")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exit, shell::words::split};

    fn parsed(line: &str) -> Result<Statement, String> {
        parse(&split(line).commands[0]).map_err(|error| {
            assert_eq!(exit::code_of(&error), exit::USAGE);
            error.to_string()
        })
    }

    #[test]
    fn tree_is_given_by_the_number_of_words() {
        let point = |line: &str| match parsed(line).unwrap() {
            Statement::Get { at, .. } | Statement::Put { at, .. } | Statement::Del { at, .. } => (at.tree, at.key),
            other => panic!("{other:?}"),
        };
        let tree = || Some("t".to_owned());
        assert_eq!(point("get k"), (None, "k".to_owned()));
        assert_eq!(point("get t k"), (tree(), "k".to_owned()));
        assert_eq!(point("put k v"), (None, "k".to_owned()));
        assert_eq!(point("put t k v"), (tree(), "k".to_owned()));
        assert_eq!(point("del t k --value v"), (tree(), "k".to_owned()));
        assert_eq!(point("get '--json'"), (None, "--json".to_owned()));
        assert_eq!(point("get -- --json"), (None, "--json".to_owned()));
        assert_eq!(point("get -1"), (None, "-1".to_owned()));
    }

    #[test]
    fn options_are_read_in_both_forms() {
        let Statement::Scan { span, is_reverse, limit, format } =
            parsed("scan t --limit=5 --reverse --prefix 'a b' --format hex").unwrap()
        else {
            panic!()
        };
        assert_eq!((is_reverse, limit, format), (true, 5, Some(PairFormat::Hex)));
        assert_eq!((span.tree.as_deref(), span.range.prefix.as_deref()), (Some("t"), Some("a b")));
    }

    #[test]
    fn wrong_command_is_refused_with_its_form() {
        for (line, part) in [
            ("gett k", "no command \"gett\""),
            ("get", "get [TREE] KEY"),
            ("get a b c", "get [TREE] KEY"),
            ("put k", "put [TREE] KEY VALUE"),
            ("get k --oops", "no option --oops"),
            ("scan --limit", "needs a value"),
            ("explain t k --repeat 0", "1 or more"),
            ("scan --limit x", "give a number"),
            ("scan --json=1", "takes no value"),
            ("scan --limit 1 --limit 2", "given twice"),
            ("scan --format json --json", "exclude each other"),
            ("scan --format xml", "give text, hex, json, jsonl"),
            ("scan --prefix a --to b", "excludes"),
            ("del t k --prefix p", "not both"),
            ("del --prefix p --value v", "needs a key"),
            ("use t --multi", "need --create"),
            ("savepoint", "savepoint NAME"),
            ("use \\q", "not an escape"),
        ] {
            let why = parsed(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }

    #[test]
    fn each_command_of_the_table_is_parsed() {
        for spec in SPECS {
            let words: String = spec.words.iter().map(|_| " w").collect();
            let line = format!("{}{words}", spec.name);
            assert!(parsed(&line).is_ok(), "{line}: {:?}", parsed(&line));
            let is_quit = matches!(parsed(&line), Ok(Statement::Quit));
            assert_eq!(is_quit, spec.name == "quit", "{line}");
        }
    }
}
