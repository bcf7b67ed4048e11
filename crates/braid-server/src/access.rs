//! Reports each request after its response, for an access log.

use crate::route::Route;
use hyper::{Method, StatusCode, Uri, http::request::Parts};
use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Receives a report of each request. See [`Options::access_log`](crate::Options::access_log).
pub trait AccessLog: Send + Sync + fmt::Debug {
    /// Takes a report. Runs on a thread that drives connections: it must not block.
    fn record(&self, access: &Access<'_>);
}

/// A request and its response. Has no token and no body.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Access<'a> {
    /// When the head of the request had arrived.
    pub began: SystemTime,
    /// The method, such as `GET`.
    pub method: &'a str,
    /// The resource without names and keys, such as `/trees/{tree}/{key}`; `-` if there is none.
    pub route: &'static str,
    /// The path and the query as sent. They have names of trees, keys, the `value` of a `DELETE`, and the
    /// `ticket` of a change stream.
    pub target: &'a str,
    /// The status of the response.
    pub status: u16,
    /// Bytes of the response's body that were passed to the connection.
    pub bytes: u64,
    /// Time until the last byte of the body was passed to the connection.
    pub time: Duration,
    /// Address of the client.
    pub peer: SocketAddr,
    /// False if the client went away, was too slow, or the response failed.
    pub is_whole: bool,
}

/// A request that is being answered. The drop reports it.
#[derive(Debug)]
pub struct Pending {
    log: Arc<dyn AccessLog>,
    began: SystemTime,
    clock: Instant,
    method: Method,
    target: Uri,
    peer: SocketAddr,
    status: StatusCode,
    bytes: u64,
    is_whole: bool,
}

impl Pending {
    pub fn new(log: &Arc<dyn AccessLog>, request: &Parts, peer: SocketAddr) -> Box<Pending> {
        Box::new(Pending {
            log: Arc::clone(log),
            began: SystemTime::now(),
            clock: Instant::now(),
            method: request.method.clone(),
            target: request.uri.clone(),
            peer,
            // Stays if the client goes away before the answer (nginx has the same number).
            status: StatusCode::from_u16(499).unwrap_or_default(),
            bytes: 0,
            is_whole: false,
        })
    }

    pub fn answered(&mut self, status: StatusCode, has_body: bool) {
        self.status = status;
        self.is_whole = !has_body || self.method == Method::HEAD;
    }

    pub fn sent(&mut self, bytes: usize, is_last: bool) {
        self.bytes += bytes as u64;
        self.is_whole |= is_last;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let target = self.target.path_and_query().map_or("*", |target| target.as_str());
        self.log.record(&Access {
            began: self.began,
            method: self.method.as_str(),
            route: Route::of(self.target.path()).map_or("-", Route::pattern),
            target,
            status: self.status.as_u16(),
            bytes: self.bytes,
            time: self.clock.elapsed(),
            peer: self.peer,
            is_whole: self.is_whole,
        });
    }
}
