//! Expiring sessions, with a time to live for a whole tree, and a counter that restarts each
//! second.
//!
//! ```text
//! cargo run --release -p braiddb --example sessions
//! ```

#![expect(clippy::disallowed_methods, reason = "this shows that time passes")]

use braiddb::{Db, Result, Tree, TreeOptions, Update};
use std::{thread::sleep, time::Duration};

/// Lifetime of an unused session.
const IDLE: Duration = Duration::from_millis(300);

/// Returns the user of a session and prolongs it atomically.
fn use_session(sessions: &Tree, id: &str) -> Result<Option<String>> {
    let user = sessions.fetch_update(id, |user| match user {
        // Restarts the tree's time to live.
        Some(user) => Update::Put(user.to_vec()),
        None => Update::Keep,
    })?;
    Ok(user.map(|user| String::from_utf8_lossy(&user).into_owned()))
}

/// Returns true if the user made fewer than three requests in this second.
fn is_within_limit(requests: &Tree, user: &str) -> Result<bool> {
    let before = requests.fetch_update(user, |count| match count {
        None => Update::PutWithTtl(vec![1], Duration::from_secs(1)),
        // At the limit: the current second continues.
        Some(&[count, ..]) if count >= 3 => Update::Keep,
        Some(count) => Update::PutWithTtl(vec![count[0] + 1], Duration::from_secs(1)),
    })?;
    Ok(before.is_none_or(|count| count[0] < 3))
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    let sessions = db.tree_with("sessions", TreeOptions { ttl: Some(IDLE), ..TreeOptions::default() })?;
    sessions.put("7f3a", "ann")?;
    sessions.put_with_ttl("91c0", "bob", Duration::from_secs(3600))?;
    for _ in 0..4 {
        sleep(IDLE / 2);
        println!("7f3a is {:?}", use_session(&sessions, "7f3a")?);
    }
    sleep(IDLE + IDLE / 2);
    println!("7f3a is {:?}, 91c0 is {:?}", use_session(&sessions, "7f3a")?, use_session(&sessions, "91c0")?);

    let requests = db.tree("requests")?;
    for number in 1..=5 {
        println!("request {number}: {}", if is_within_limit(&requests, "ann")? { "done" } else { "too many" });
    }
    if let Some((count, Some(expires))) = requests.get_with_expiry("ann")? {
        println!("{} requests counted until {expires:?}", count[0]);
    }
    Ok(())
}
