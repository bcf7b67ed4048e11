//! Atomic batches: `POST /batch`.
//!
//! The body is a JSON list of operations. All are applied in one transaction, or none.

use crate::{
    body::Body,
    json::to_bytes,
    place::in_pool,
    problem::Problem,
    query::Query,
    record,
    service::{Answer, Service, typed},
    upload,
};
use braiddb::{Commit, Db, Transaction, Tree, Version};
use braiddb_typed::text;
use hyper::{StatusCode, body::Incoming, header, http::request::Parts};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
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
    tree: String,
    key: Vec<u8>,
    action: Action,
    condition: Option<Condition>,
}

enum Action {
    Put(Vec<u8>, Option<Duration>),
    Delete,
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
    let bytes = upload::receive_whole(service, body, bytes_max).await?;
    let is_short = bytes.len() <= upload::SMALL_BYTES;
    let operations = Arc::new(if is_short { parse(&bytes) } else { in_pool(move || parse(&bytes)).await? }?);
    let is_short = is_short && operations.len() <= SHORT_MAX;
    let began = Instant::now();
    loop {
        let (db, operations) = (service.db(), Arc::clone(&operations));
        let apply = move || apply(&db, &operations);
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

fn parse(bytes: &[u8]) -> Result<Vec<Operation>, Problem> {
    let list = match serde_json::from_slice(bytes) {
        Ok(Value::Array(list)) => list,
        Ok(_) => return Err(Problem::bad_request("a batch is a JSON list of operations")),
        Err(error) => return Err(Problem::bad_request(format!("the batch is not JSON: {error}"))),
    };
    let parse = |(at, value): (usize, &Value)| {
        Operation::parse(value).map_err(|detail| Problem::bad_request(detail).of_operation(at))
    };
    list.iter().enumerate().map(parse).collect()
}

impl Operation {
    fn parse(value: &Value) -> Result<Operation, String> {
        let object = value.as_object().ok_or("an operation is a JSON object")?;
        if let Some(unknown) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!("no field is named {unknown:?}; there are: {}", FIELDS.join(", ")));
        }
        let text = |name: &str| object.get(name).map(|text| text.as_str().ok_or(format!("{name} is a string")));
        let ttl = object.get("ttl").map(|ttl| ttl.as_u64().ok_or("ttl is a whole number of seconds")).transpose()?;
        let value = object.get("value").map(|value| to_bytes(value).ok_or("value is a string or {\"hex\": \"..\"}"));
        let condition = Condition::parse(object)?;
        let action = match (text("op").transpose()?, value.transpose()?, ttl) {
            (Some("put"), Some(value), ttl) => Action::Put(value, ttl.map(Duration::from_secs)),
            (Some("put"), None, _) => return Err("put needs a value: a string or {\"hex\": \"..\"}".to_owned()),
            (Some("delete"), None, None) => Action::Delete,
            (Some("check"), None, None) if condition.is_some() => Action::Check,
            (Some("check"), None, None) => return Err("check needs if_version or if_absent".to_owned()),
            (Some("delete" | "check"), ..) => return Err("only put takes a value and a ttl".to_owned()),
            _ => return Err("op is put, delete or check".to_owned()),
        };
        let tree = text("tree").transpose()?.ok_or("an operation needs a tree")?.to_owned();
        let key = object.get("key").ok_or("an operation needs a key")?;
        let key = match text("codec").transpose()? {
            None => to_bytes(key).ok_or("key is a string or {\"hex\": \"..\"}; with \"codec\": \"tuple\" a list")?,
            Some("tuple") => text::from_json(key).map_err(|why| format!("the key is no tuple: {why}"))?,
            Some(_) => return Err("the only codec of keys is tuple".to_owned()),
        };
        Ok(Operation { tree, key, action, condition })
    }

    fn apply(&self, transaction: &Transaction, tree: &Tree) -> Result<(), Problem> {
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
        match &self.action {
            Action::Put(value, None) => transaction.put(tree, &self.key, value)?,
            Action::Put(value, Some(ttl)) => transaction.put_with_ttl(tree, &self.key, value, *ttl)?,
            Action::Delete => transaction.delete(tree, &self.key)?,
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
                // With or without the quotes of the header ETag.
                let parsed = version
                    .as_str()
                    .and_then(|text| Version::from_etag(format!("\"{}\"", text.trim_matches('"')).as_bytes()));
                parsed.map(|version| Some(Condition::Version(version))).ok_or_else(|| {
                    "if_version is the text of a version, as the header ETag and the answer to a batch have it"
                        .to_owned()
                })
            }
        }
    }
}

fn apply(db: &Db, operations: &[Operation]) -> Result<Commit, Problem> {
    let mut trees: HashMap<&str, Tree> = HashMap::new();
    let transaction = db.begin()?;
    for (at, operation) in operations.iter().enumerate() {
        let of_operation = |problem: Problem| problem.of_operation(at);
        let tree = match trees.get(operation.tree.as_str()) {
            Some(tree) => tree.clone(),
            None => {
                let tree = db.open_tree(&operation.tree).map_err(|error| of_operation(error.into()))?;
                trees.insert(&operation.tree, tree.clone());
                tree
            }
        };
        operation.apply(&transaction, &tree).map_err(of_operation)?;
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
            r#"{"op":"delete","tree":"t","key":"k","value":"v"}"#,
            r#"{"op":"delete","tree":"t","key":"k","ttl":1}"#,
            r#"{"op":"check","tree":"t","key":"k"}"#,
            r#"{"op":"merge","tree":"t","key":"k"}"#,
        ] {
            assert!(parse(format!("[{wrong}]").as_bytes()).is_err(), "{wrong}");
        }
        for wrong in ["", "{}", "[1]", "[", "null"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let right = r#"[{"op":"put","tree":"t","key":["a",1],"value":{"hex":"ff"},"ttl":9,"codec":"tuple"},
            {"op":"check","tree":"t","key":"k","if_version":"0000000000000007-0000000000000001"}]"#;
        assert_eq!(parse(right.as_bytes()).unwrap().len(), 2);
    }
}
