//! Atomic batches: `POST /batch`.
//!
//! The body is a JSON list of operations. All are applied in one transaction, or none. The parser
//! converts one operation at a time, so the batch is never held as a JSON document.

use crate::{
    body::Body,
    changes::parse_version,
    json::into_bytes,
    opened::{self, Opened},
    pairs,
    place::in_pool,
    problem::Problem,
    query::Query,
    record,
    rules::Checks,
    service::{Answer, Service, typed},
    upload,
};
use braiddb::{Commit, Db, MultiTree, Transaction, Tree, Version};
use braiddb_typed::text;
use hyper::{StatusCode, body::Incoming, header, http::request::Parts};
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::{Map, Value, error::Category, json};
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time for which a batch is repeated after conflicts.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// Pause before a repetition.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Maximum operations of a batch that may run on a worker.
const SHORT_MAX: usize = 32;

const FIELDS: [&str; 8] = ["op", "tree", "key", "value", "ttl", "if_version", "if_absent", "codec"];

/// An operation of a batch.
struct Operation {
    tree: Arc<str>,
    key: Vec<u8>,
    action: Action,
    condition: Option<Condition>,
}

enum Action {
    Put(Vec<u8>, Option<Duration>),
    /// Of a tree with many values per key, one value or all.
    Delete(Option<Vec<u8>>),
    /// Only the condition.
    Check,
}

enum Condition {
    Version(Version),
    Absent,
}

pub async fn post(service: &Service, request: &Parts, body: &mut Option<Incoming>) -> Answer {
    Query::of(request.uri.query(), &[])?;
    let bytes_max = service.limits().batch_bytes;
    upload::check_declared(&request.headers, bytes_max)?;
    // The turn lasts until the commit: the operations and the transaction have a multiple of the body.
    let (bytes, _turn) = upload::receive_whole(service, &request.headers, body, bytes_max).await?;
    let is_short = bytes.len() <= upload::SMALL_BYTES;
    let operations_max = service.limits().batch_operations;
    let parse = move || parse(&bytes, operations_max);
    let operations = Arc::new(if is_short { parse() } else { in_pool(parse).await? }?);
    let is_short = is_short && operations.len() <= SHORT_MAX;
    let began = Instant::now();
    loop {
        let (db, checks, operations) = (service.db(), service.checks().clone(), Arc::clone(&operations));
        let apply = move || apply(&db, &checks, &operations);
        let commit = if is_short { service.place().run(apply).await?? } else { in_pool(apply).await?? };
        match commit.await {
            Ok(sequence) => {
                let version = service.db().version_of(sequence);
                let text = format!("{}\n", json!({"version": version.etag().trim_matches('"')}));
                let mut response = typed(StatusCode::OK, "application/json", Body::whole(text));
                response.headers_mut().insert(header::ETAG, record::etag(version));
                return Ok(response);
            }
            Err(error) if error.is_conflict() && began.elapsed() < RETRY_TIME => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) if error.is_conflict() => return Err(record::conflict()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn parse(bytes: &[u8], operations_max: usize) -> Result<Vec<Operation>, Problem> {
    let mut problem = None;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = json.deserialize_seq(Parser { operations_max, problem: &mut problem });
    parsed.and_then(|operations| json.end().map(|()| operations)).map_err(|error| {
        problem.unwrap_or_else(|| match error.classify() {
            Category::Data => Problem::bad_request("a batch is a JSON list of operations"),
            _ => Problem::bad_request(format!("the batch is not JSON: {error}")),
        })
    })
}

struct Parser<'p> {
    operations_max: usize,
    /// Set if an operation is refused; the error of the JSON then has no meaning.
    problem: &'p mut Option<Problem>,
}

impl<'de> Visitor<'de> for Parser<'_> {
    type Value = Vec<Operation>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of operations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Operation>, A::Error> {
        let mut operations: Vec<Operation> = Vec::new();
        let mut names = HashSet::new();
        while let Some(value) = list.next_element::<Value>()? {
            let at = operations.len();
            let parsed = match at < self.operations_max {
                true => Operation::parse(value, &mut names).map_err(Problem::bad_request),
                false => Err(Problem::too_large(format!(
                    "a batch has at most {} operations: use several batches",
                    self.operations_max
                ))),
            };
            match parsed {
                Ok(operation) => operations.push(operation),
                Err(problem) => {
                    *self.problem = Some(problem.of_operation(at));
                    return Err(A::Error::custom("an operation is refused"));
                }
            }
        }
        Ok(operations)
    }
}

impl Operation {
    /// `names` has the trees of the operations before.
    fn parse(value: Value, names: &mut HashSet<Arc<str>>) -> Result<Operation, String> {
        let Value::Object(mut object) = value else { return Err("an operation is a JSON object".to_owned()) };
        if let Some(unknown) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!("no field is named {unknown:?}; there are: {}", FIELDS.join(", ")));
        }
        let (key, value) = (object.remove("key"), object.remove("value"));
        let text = |name: &str| object.get(name).map(|text| text.as_str().ok_or(format!("{name} is a string")));
        let ttl = object.get("ttl").map(|ttl| ttl.as_u64().ok_or("ttl is a whole number of seconds")).transpose()?;
        let value = value.map(|value| into_bytes(value).ok_or("value is a string or {\"hex\": \"..\"}"));
        let condition = Condition::parse(&object)?;
        let action = match (text("op").transpose()?, value.transpose()?, ttl) {
            (Some("put"), Some(value), ttl) => Action::Put(value, ttl.map(Duration::from_secs)),
            (Some("put"), None, _) => return Err("put needs a value: a string or {\"hex\": \"..\"}".to_owned()),
            (Some("delete"), value, None) => Action::Delete(value),
            (Some("check"), None, None) if condition.is_some() => Action::Check,
            (Some("check"), None, None) => return Err("check needs if_version or if_absent".to_owned()),
            (Some("delete"), ..) => return Err("only put takes a ttl".to_owned()),
            (Some("check"), ..) => return Err("check takes no value and no ttl".to_owned()),
            _ => return Err("op is put, delete or check".to_owned()),
        };
        let name = text("tree").transpose()?.ok_or("an operation needs a tree")?;
        let tree = names.get(name).map_or_else(|| Arc::from(name), Arc::clone);
        names.insert(Arc::clone(&tree));
        let key = key.ok_or("an operation needs a key")?;
        let key = match text("codec").transpose()? {
            None => into_bytes(key).ok_or("key is a string or {\"hex\": \"..\"}; with \"codec\": \"tuple\" a list")?,
            Some("tuple") => text::from_json(&key).map_err(|why| format!("the key is no tuple: {why}"))?,
            Some(_) => return Err("the only codec of keys is tuple".to_owned()),
        };
        Ok(Operation { tree, key, action, condition })
    }

    fn apply(&self, transaction: &Transaction, tree: &Opened, checks: &Checks) -> Result<(), Problem> {
        match tree {
            Opened::Single(tree) => self.apply_single(transaction, tree, checks),
            Opened::Multi(tree) => self.apply_multi(transaction, tree),
        }
    }

    /// Applies it to a tree with many values per key.
    fn apply_multi(&self, transaction: &Transaction, tree: &MultiTree) -> Result<(), Problem> {
        let pairs = transaction.multi_tree(tree);
        match (&self.action, &self.condition) {
            (Action::Put(value, None), None) => pairs.add(&self.key, value)?,
            (Action::Delete(Some(value)), None) => pairs.delete_pair(&self.key, value)?,
            (Action::Delete(None), None) => pairs.delete(&self.key)?,
            _ => return Err(pairs::has_no_versions()),
        }
        Ok(())
    }

    fn apply_single(&self, transaction: &Transaction, tree: &Tree, checks: &Checks) -> Result<(), Problem> {
        if let Some(condition) = &self.condition {
            let found = transaction.stream(tree, &self.key)?;
            match (condition, found.map(|reader| reader.version())) {
                (Condition::Absent, None) => {}
                (Condition::Absent, Some(_)) => {
                    return Err(Problem::precondition_failed("the record exists: nothing was changed"));
                }
                (Condition::Version(expected), Some(Some(present))) if *expected == present => {}
                (Condition::Version(_), Some(Some(present))) => {
                    let detail = format!("the record has the version {present}: nothing was changed; read it again");
                    return Err(Problem::precondition_failed(detail));
                }
                // A record that this batch wrote has no version yet.
                (Condition::Version(_), _) => {
                    let detail = "there is no record with this version: nothing was changed";
                    return Err(Problem::precondition_failed(detail));
                }
            }
        }
        if let Action::Put(value, _) = &self.action {
            checks.of_put(tree, &self.key, Some(value))?;
        }
        match &self.action {
            Action::Put(value, None) => transaction.put(tree, &self.key, value)?,
            Action::Put(value, Some(ttl)) => transaction.put_with_ttl(tree, &self.key, value, *ttl)?,
            Action::Delete(None) => transaction.delete(tree, &self.key)?,
            Action::Delete(Some(_)) => {
                let detail = "only a delete from a tree with many values per key takes a value";
                return Err(Problem::bad_request(detail));
            }
            Action::Check => {}
        }
        Ok(())
    }
}

impl Condition {
    fn parse(object: &Map<String, Value>) -> Result<Option<Condition>, String> {
        let is_absent = match object.get("if_absent") {
            None | Some(Value::Bool(false)) => false,
            Some(Value::Bool(true)) => true,
            Some(_) => return Err("if_absent is true or false".to_owned()),
        };
        match (object.get("if_version"), is_absent) {
            (None, false) => Ok(None),
            (None, true) => Ok(Some(Condition::Absent)),
            (Some(_), true) => Err("if_version and if_absent exclude each other".to_owned()),
            (Some(version), false) => {
                let parsed = version.as_str().and_then(parse_version);
                parsed.map(|version| Some(Condition::Version(version))).ok_or_else(|| {
                    "if_version is the text of a version, as the header ETag and the answer to a batch have it"
                        .to_owned()
                })
            }
        }
    }
}

/// A tree of a batch.
struct Used {
    tree: Opened,
    /// Clients may write its records.
    is_checked: bool,
}

/// Opens the tree of an operation, and checks it at the first write.
fn open<'t, 'o>(
    db: &Db,
    checks: &Checks,
    trees: &'t mut HashMap<&'o str, Used>,
    operation: &'o Operation,
) -> Result<&'t Opened, Problem> {
    let used = match trees.entry(&operation.tree) {
        Entry::Occupied(used) => used.into_mut(),
        Entry::Vacant(free) => free.insert(Used { tree: opened::open(db, &operation.tree)?, is_checked: false }),
    };
    if !used.is_checked && !matches!(operation.action, Action::Check) {
        match &used.tree {
            Opened::Single(tree) => checks.of_records(db, tree)?,
            Opened::Multi(tree) => checks.of_pairs(db, tree)?,
        }
        used.is_checked = true;
    }
    Ok(&used.tree)
}

fn apply(db: &Db, checks: &Checks, operations: &[Operation]) -> Result<Commit, Problem> {
    let mut trees: HashMap<&str, Used> = HashMap::new();
    let transaction = db.begin()?;
    for (at, operation) in operations.iter().enumerate() {
        let opened = open(db, checks, &mut trees, operation);
        let applied = opened.and_then(|tree| operation.apply(&transaction, tree, checks));
        applied.map_err(|problem| problem.of_operation(at))?;
    }
    Ok(transaction.commit_async())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_operation_is_refused() {
        for wrong in [
            r#"{}"#,
            r#"[]"#,
            r#"{"op":"put","tree":"t","key":"k"}"#,
            r#"{"op":"put","tree":"t","key":"k","value":1}"#,
            r#"{"op":"put","tree":"t","key":7,"value":"v"}"#,
            r#"{"op":"put","tree":"t","value":"v"}"#,
            r#"{"op":"put","key":"k","value":"v"}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","ttl":-1}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","ttl":"9"}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","if_vresion":"x"}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","if_version":"x"}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","if_absent":1}"#,
            r#"{"op":"put","tree":"t","key":"k","value":"v","codec":"json"}"#,
            r#"{"op":"delete","tree":"t","key":"k","value":1}"#,
            r#"{"op":"check","tree":"t","key":"k","value":"v","if_absent":true}"#,
            r#"{"op":"delete","tree":"t","key":"k","ttl":1}"#,
            r#"{"op":"check","tree":"t","key":"k"}"#,
            r#"{"op":"merge","tree":"t","key":"k"}"#,
        ] {
            assert!(parse(format!("[{wrong}]").as_bytes(), 9).is_err(), "{wrong}");
        }
        for wrong in ["", "{}", "[1]", "[", "null", "[] []"] {
            assert!(parse(wrong.as_bytes(), 9).is_err(), "{wrong}");
        }
        let right = r#"[{"op":"put","tree":"t","key":["a",1],"value":{"hex":"ff"},"ttl":9,"codec":"tuple"},
            {"op":"check","tree":"t","key":"k","if_version":"0000000000000007-0000000000000001"}]"#;
        assert_eq!(parse(right.as_bytes(), 2).unwrap().len(), 2);
        assert!(parse(right.as_bytes(), 1).is_err());
    }
}
