//! Trees: their list, `PUT` and `DELETE` of `/trees/{tree}`.

use crate::{
    body::Body,
    place::in_pool,
    problem::Problem,
    query::{self, Query},
    service::{Answer, Service, new_response, typed},
};
use braiddb::{Db, TreeOptions, stats::TreeInfo};
use hyper::{StatusCode, http::request::Parts};
use serde_json::{Value, json};

pub async fn list(service: &Service, request: &Parts) -> Answer {
    Query::of(request.uri.query(), &[])?;
    let db = service.db();
    let trees = in_pool(move || {
        let infos = db.trees()?;
        infos.iter().map(|info| describe(&db, info)).collect::<Result<Vec<Value>, Problem>>()
    });
    let text = format!("{}\n", json!({"trees": trees.await??}));
    Ok(typed(StatusCode::OK, "application/json", Body::whole(text)))
}

fn describe(db: &Db, info: &TreeInfo) -> Result<Value, Problem> {
    let estimate = match info.multi {
        true => db.open_multi_tree(&info.name)?.approximate(..)?,
        false => db.open_tree(&info.name)?.approximate(..)?,
    };
    Ok(json!({
        "name": info.name,
        "kind": if info.multi { "multi" } else { "single" },
        "records_estimate": estimate.keys,
        "bytes_estimate": estimate.bytes,
        "ttl": info.ttl.map(|ttl| ttl.as_secs_f64()),
        "codec": info.codec.map(|codec| codec.to_string()),
    }))
}

/// Creates a tree: 201, or 204 if it exists with the same time to live.
pub async fn create(service: &Service, request: &Parts, name: &str) -> Answer {
    let ttl = Query::of(request.uri.query(), &["ttl"])?.seconds("ttl")?;
    let (db, name) = (service.db(), query::decode_name(name)?.into_owned());
    let is_new = in_pool(move || {
        let is_new = match db.open_tree(&name) {
            Err(error) if error.is_not_found() => true,
            found => found.map(|_| false)?,
        };
        let options = ttl.map_or_else(TreeOptions::new, |ttl| TreeOptions::new().ttl(ttl));
        db.tree_with(&name, options)?;
        Ok::<_, Problem>(is_new)
    });
    let status = if is_new.await?? { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok(new_response(status, Body::empty()))
}

/// Drops a tree with its records.
pub async fn drop(service: &Service, request: &Parts, name: &str) -> Answer {
    Query::of(request.uri.query(), &[])?;
    let (db, name) = (service.db(), query::decode_name(name)?.into_owned());
    in_pool(move || db.drop_tree(&name)).await??;
    Ok(new_response(StatusCode::NO_CONTENT, Body::empty()))
}
