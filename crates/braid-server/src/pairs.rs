//! Records of trees with many values per key: `GET`, `HEAD`, `PUT` and `DELETE` of
//! `/trees/{tree}/{key}`.
//!
//! A `GET` is a scan of the key's pairs. A `PUT` adds a value, which may be there already; a
//! `DELETE` takes one value, or all. Pairs have no versions and do not expire, so preconditions and
//! times to live are refused.

use crate::{
    body::Body,
    problem::Problem,
    query::Query,
    record, scan,
    service::{Answer, Service, new_response},
    upload,
};
use braiddb::{Db, MultiTree};
use hyper::{HeaderMap, StatusCode, body::Incoming, header, http::request::Parts};

/// Maximum bytes of a value, which is part of an entry's key.
pub const VALUE_BYTES_MAX: u64 = 64 << 10;

/// The problem of a condition or a time to live.
pub fn has_no_versions() -> Problem {
    Problem::bad_request(
        "pairs of a tree with many values per key have no version and do not expire: leave out preconditions and ttl; \
         adding a pair that is there, or deleting one that is not, changes nothing",
    )
}

fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
    if conditions.iter().any(|name| headers.contains_key(name)) { Err(has_no_versions()) } else { Ok(()) }
}

pub async fn get(service: &Service, request: &Parts, tree: MultiTree, name: &str, key: &str) -> Answer {
    check_headers(&request.headers)?;
    let query = Query::of(request.uri.query(), &["codec", "reverse", "limit", "next"])?;
    let key = service.key(key, query)?;
    if !query.has("next") {
        let (tree, key) = (tree, key.to_vec());
        if !service.place().run(move || tree.contains(key)).await?? {
            return Err(Problem::not_found("the tree has no value of this key"));
        }
    }
    scan::of_key(service, request, query, name, &key).await
}

pub async fn put(
    service: &Service,
    request: &Parts,
    body: &mut Option<Incoming>,
    tree: MultiTree,
    key: &str,
) -> Answer {
    check_headers(&request.headers)?;
    let query = Query::of(request.uri.query(), &["codec", "ttl"])?;
    if query.has("ttl") {
        return Err(has_no_versions());
    }
    record::check_coding(&request.headers)?;
    let key = service.key(key, query)?.into_owned();
    upload::check_declared(&request.headers, VALUE_BYTES_MAX)?;
    let (value, _turn) = upload::receive_whole(service, &request.headers, body, VALUE_BYTES_MAX).await?;
    let (db, checks) = (service.db(), service.checks().clone());
    let write = move || {
        checks.of_pairs(&db, &tree)?;
        let is_new = !tree.contains_pair(&key, &value)?;
        let mut batch = db.batch();
        batch.add(&tree, key, value);
        Ok::<_, Problem>((batch.commit_async(), is_new))
    };
    let (commit, is_new) = service.place().run(write).await??;
    commit.await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok(new_response(status, Body::empty()))
}

pub async fn delete(service: &Service, request: &Parts, tree: MultiTree, key: &str) -> Answer {
    check_headers(&request.headers)?;
    let query = Query::of(request.uri.query(), &["codec", "value"])?;
    let (key, value) = (service.key(key, query)?.into_owned(), query.bytes("value")?);
    let value = value.map(|value| value.into_owned());
    let (db, checks) = (service.db(), service.checks().clone());
    let delete = move || {
        checks.of_pairs(&db, &tree)?;
        Ok::<_, Problem>(begin_delete(&db, &tree, &key, value.as_deref()))
    };
    service.place().run(delete).await??.await?;
    Ok(new_response(StatusCode::NO_CONTENT, Body::empty()))
}

fn begin_delete(db: &Db, tree: &MultiTree, key: &[u8], value: Option<&[u8]>) -> braiddb::Commit {
    let mut batch = db.batch();
    match value {
        Some(value) => batch.delete_pair(tree, key, value),
        None => batch.delete(tree, key),
    };
    batch.commit_async()
}
