//! Sessions that expire, with a tree whose values all do, and one counter that starts anew each second.
//!
//! ```text
//! cargo run --release -p braiddb --example sessions
//! ```

#![expect(clippy::disallowed_methods, reason = "this shows that time passes")]

use braiddb::{Db, Result, Tree, TreeOptions, Update};
use std::{thread::sleep, time::Duration};

/// A session lives for so long after it was last used.
const IDLE: Duration = Duration::from_millis(300);

/// Whose session it is; using it prolongs it. Nobody else's change is lost.
fn use_session(sessions: &Tree, id: &str) -> Result<Option<String>> {
    let user = sessions.fetch_update(id, |user| match user {
        // The tree's own time to live counts from now on again.
        Some(user) => Update::Put(user.to_vec()),
        None => Update::Keep,
    })?;
    Ok(user.map(|user| String::from_utf8_lossy(&user).into_owned()))
}

/// Whether one more request is within the limit of three in a second.
fn is_within_limit(requests: &Tree, user: &str) -> Result<bool> {
    let before = requests.fetch_update(user, |count| match count {
        None => Update::PutWithTtl(vec![1], Duration::from_secs(1)),
        // The limit is reached: the second that was begun goes on.
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
