//! Trees: their list, `PUT` and `DELETE` of `/trees/{tree}`.

use crate::{
    body::Body,
    conditions::Conditions,
    place::in_pool,
    problem::Problem,
    query::{self, Query},
    service::{Answer, Service, new_response, typed},
};
use braiddb::{Db, TreeOptions, stats::TreeInfo};
use hyper::{
    StatusCode,
    body::{Body as _, Incoming},
    http::request::Parts,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

pub async fn list(service: &Service, request: &Parts) -> Answer {
    let query = Query::of(request.uri.query(), &["sizes"])?;
    let has_sizes = query.bytes("sizes")?.is_none() || query.flag("sizes")?;
    let db = service.db();
    let trees = in_pool(move || {
        let infos = db.trees()?;
        infos
            .iter()
            .filter_map(|info| describe(&db, info, has_sizes).transpose())
            .collect::<Result<Vec<Value>, Problem>>()
    });
    let text = format!("{}\n", json!({"trees": trees.await??}));
    Ok(typed(StatusCode::OK, "application/json", Body::whole(text)))
}

/// Returns `None` for a tree that was dropped after the list was made. An estimate scans memtables,
/// which takes seconds for thousands of trees.
fn describe(db: &Db, info: &TreeInfo, has_sizes: bool) -> Result<Option<Value>, Problem> {
    let estimate = match info.multi {
        _ if !has_sizes => Ok(None),
        true => db.open_multi_tree(&info.name).and_then(|tree| tree.approximate(..)).map(Some),
        false => db.open_tree(&info.name).and_then(|tree| tree.approximate(..)).map(Some),
    };
    let estimate = match estimate {
        Err(error) if error.is_not_found() => return Ok(None),
        // One damaged block must not hide the other trees.
        Err(error) if error.is_corruption() => None,
        estimate => estimate?,
    };
    Ok(Some(json!({
        "name": info.name,
        "id": info.id,
        "kind": if info.multi { "multi" } else { "single" },
        "records_estimate": estimate.map(|estimate| estimate.keys),
        "bytes_estimate": estimate.map(|estimate| estimate.bytes),
        "ttl": info.ttl.map(|ttl| ttl.as_secs_f64()),
        "codec": info.codec.map(|codec| codec.to_string()),
    })))
}

/// Refuses a body, which would be ignored.
fn refuse_body(body: Option<&Incoming>) -> Result<(), Problem> {
    match body.is_none_or(|body| body.is_end_stream()) {
        true => Ok(()),
        false => Err(Problem::bad_request(
            "a tree is created and dropped without a body: records are put at /trees/{tree}/{key}",
        )),
    }
}

/// Refuses to create a tree that exists with another kind or time to live.
fn check_same(found: &TreeInfo, is_multi: bool, ttl: Option<Duration>) -> Result<(), Problem> {
    let differs = |detail| Err(Problem::new(StatusCode::CONFLICT, "Tree differs", detail));
    match (found.multi, is_multi) {
        (true, false) => return differs("the tree exists with many values per key: add kind=multi".to_owned()),
        (false, true) => return differs("the tree exists with one value per key: leave out kind=multi".to_owned()),
        _ => {}
    }
    if found.ttl == ttl {
        return Ok(());
    }
    let remedy = match found.ttl {
        Some(has) => format!("the tree exists with a time to live: ask for ttl={}", has.as_secs_f64()),
        None => "the tree exists without a time to live: leave out ttl".to_owned(),
    };
    differs(format!("{remedy}; `braid trees DB --set` changes it"))
}

/// Creates a tree: 201, or 204 if it exists with the same time to live.
pub async fn create(service: &Service, request: &Parts, body: Option<&Incoming>, name: &str) -> Answer {
    let query = Query::of(request.uri.query(), &["ttl", "kind"])?;
    let ttl = query.seconds("ttl")?;
    let is_multi = match query.bytes("kind")?.as_deref() {
        None | Some(b"single") => false,
        Some(b"multi") => true,
        Some(_) => return Err(Problem::bad_request("kind is single, or multi for many values per key")),
    };
    if is_multi && ttl.is_some() {
        return Err(Problem::bad_request("pairs of a tree with many values per key do not expire: leave out ttl"));
    }
    refuse_body(body)?;
    let conditions = Conditions::of(&request.headers)?;
    let (db, name) = (service.db(), query::decode_name(name)?.into_owned());
    let (checks, changes) = (service.checks().clone(), Arc::clone(service.tree_changes()));
    let is_new = in_pool(move || {
        let _alone = changes.lock().unwrap_or_else(PoisonError::into_inner);
        checks.of_create(&db, &name)?;
        let found = db.tree_info(&name)?;
        conditions.of_tree(found.is_some())?;
        let is_new = found.is_none();
        found.map_or(Ok(()), |found| check_same(&found, is_multi, ttl))?;
        if is_multi {
            db.multi_tree(&name)?;
        } else {
            db.tree_with(&name, ttl.map_or_else(TreeOptions::new, |ttl| TreeOptions::new().ttl(ttl)))?;
        }
        Ok::<_, Problem>(is_new)
    });
    let status = if is_new.await?? { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok(new_response(status, Body::empty()))
}

/// Drops a tree with its records.
pub async fn drop(service: &Service, request: &Parts, body: Option<&Incoming>, name: &str) -> Answer {
    Query::of(request.uri.query(), &[])?;
    refuse_body(body)?;
    let conditions = Conditions::of(&request.headers)?;
    let (db, name) = (service.db(), query::decode_name(name)?.into_owned());
    let (checks, changes) = (service.checks().clone(), Arc::clone(service.tree_changes()));
    let dropped = in_pool(move || {
        let _alone = changes.lock().unwrap_or_else(PoisonError::into_inner);
        let found = db.tree_info(&name)?;
        conditions.of_tree(found.is_some())?;
        checks.of_drop(&db, &name)?;
        Ok::<_, Problem>(db.drop_tree(&name)?)
    });
    dropped.await??;
    Ok(new_response(StatusCode::NO_CONTENT, Body::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GET /trees` answered 404 if a tree was dropped meanwhile.
    #[test]
    fn tree_dropped_after_the_list_is_left_out() {
        let db = Db::in_memory().unwrap();
        db.tree("t").unwrap();
        db.multi_tree("m").unwrap();
        let infos = db.trees().unwrap();
        assert!(infos.iter().all(|info| describe(&db, info, true).unwrap().is_some()));
        db.drop_trees(&["t", "m"]).unwrap();
        assert!(infos.iter().all(|info| describe(&db, info, true).unwrap().is_none()));
    }
}
