//! Tickets for `GET /changes`: `POST /ticket`.
//!
//! A browser's `EventSource` can send no `Authorization`, and a cookie on a loopback address would go to
//! the servers of all ports. A token in a URL would stay in logs and may do everything. A ticket may
//! only open change streams, and expires.

use crate::{
    body::Body,
    problem::Problem,
    query::Query,
    service::{Answer, Service, typed},
};
use hyper::{StatusCode, http::request::Parts};
use serde_json::json;
use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const RANDOM_BYTES: usize = 24;
/// Maximum tickets. A further one takes the place of the one unused for longest.
const TICKETS_MAX: usize = 1024;

/// The valid tickets with the times of their last use. Locked for a lookup or an insertion.
#[derive(Debug)]
pub struct Tickets {
    used: Mutex<HashMap<String, Instant>>,
    life: Duration,
}

impl Tickets {
    /// A ticket expires this long after its last use.
    pub fn new(life: Duration) -> Tickets {
        Tickets { used: Mutex::default(), life }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, used| used.elapsed() < self.life);
        used
    }

    fn issue(&self) -> Result<String, Problem> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|_| Problem::busy("the system has no random bytes: try again"))?;
        let mut ticket = String::with_capacity(2 * RANDOM_BYTES);
        for byte in random {
            let _ = write!(ticket, "{byte:02x}");
        }
        let mut live = self.live();
        while live.len() >= TICKETS_MAX {
            let Some(oldest) = live.iter().min_by_key(|(_, used)| **used).map(|(ticket, _)| ticket.clone()) else {
                break;
            };
            live.remove(&oldest);
        }
        live.insert(ticket.clone(), Instant::now());
        Ok(ticket)
    }

    /// Returns whether the query has a valid ticket, which counts as its use.
    pub fn is_in(&self, query: Option<&str>) -> bool {
        let Some(ticket) = query.and_then(of_query) else { return false };
        let mut live = self.live();
        let used = live.get_mut(ticket);
        used.map(|used| *used = Instant::now()).is_some()
    }
}

fn of_query(query: &str) -> Option<&str> {
    query.split('&').find_map(|part| part.strip_prefix("ticket="))
}

/// Replaces the text of a refused token, if the client gave a ticket.
pub fn explain(problem: Problem, query: Option<&str>) -> Problem {
    match query.and_then(of_query) {
        None => problem,
        Some(_) => {
            let detail = "the ticket has expired, or the server has started again: get another one with POST /ticket";
            Problem::new(StatusCode::UNAUTHORIZED, "No valid ticket", detail)
        }
    }
}

pub fn post(service: &Service, request: &Parts) -> Answer {
    Query::of(request.uri.query(), &[])?;
    let ticket = service.tickets().issue()?;
    let text = format!("{}\n", json!({"ticket": ticket, "seconds": service.limits().ticket_life.as_secs()}));
    Ok(typed(StatusCode::OK, "application/json", Body::whole(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_lasts_from_its_last_use() {
        let tickets = Tickets::new(Duration::from_secs(3600));
        let ticket = tickets.issue().unwrap();
        assert_eq!(ticket.len(), 2 * RANDOM_BYTES);
        let query = format!("tree=t&ticket={ticket}");
        assert!(tickets.is_in(Some(&query)) && tickets.is_in(Some(&query)));
        for wrong in [None, Some(""), Some("ticket="), Some("ticket"), Some(&query[1..query.len() - 1])] {
            assert!(!tickets.is_in(wrong), "{wrong:?}");
        }
        // The one unused for longest goes.
        let later: Vec<String> = (1..TICKETS_MAX).map(|_| tickets.issue().unwrap()).collect();
        assert!(tickets.is_in(Some(&query)));
        tickets.issue().unwrap();
        assert!(tickets.is_in(Some(&query)) && !tickets.is_in(Some(&format!("ticket={}", later[0]))));

        let expired = Tickets::new(Duration::ZERO);
        let ticket = expired.issue().unwrap();
        assert!(!expired.is_in(Some(&format!("ticket={ticket}"))));
    }
}
