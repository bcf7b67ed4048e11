//! Error responses: `application/problem+json` (RFC 9457).

use crate::body::Body;
use braiddb::Error;
use hyper::{
    Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use std::{borrow::Cow, fmt};

/// The title of a response to a client that may ask again.
const BUSY: &str = "Busy";

/// An error response. The detail states the remedy.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: Cow<'static, str>,
    /// Index of the operation in a batch.
    operation: Option<usize>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem { status, title, detail: detail.into(), operation: None, header: None }
    }

    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "Bad request", detail)
    }

    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "Not found", detail)
    }

    pub fn precondition_failed(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::PRECONDITION_FAILED, "Precondition failed", detail)
    }

    pub fn too_large(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Body too large", detail)
    }

    pub fn busy(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, BUSY, detail)
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    pub fn panicked() -> Problem {
        let detail = "a call of the database panicked: see the server's log";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", detail)
    }

    pub fn with_header(self, name: HeaderName, value: HeaderValue) -> Problem {
        Problem { header: Some(Box::new((name, value))), ..self }
    }

    pub fn of_operation(self, operation: usize) -> Problem {
        Problem { operation: Some(operation), ..self }
    }

    /// Returns the title and the detail, if the server or the database failed. A follower that has no
    /// change stream is no failure, and neither is a request at a bad time.
    pub fn failure(&self) -> Option<(StatusCode, &'static str, &str)> {
        let is_expected = self.status == StatusCode::NOT_IMPLEMENTED || self.title == BUSY;
        let is_failure = self.status.is_server_error() && !is_expected;
        is_failure.then_some((self.status, self.title, &self.detail))
    }

    pub fn to_json(&self) -> Value {
        let mut json = json!({"title": self.title, "status": self.status.as_u16(), "detail": self.detail});
        if let Some(operation) = self.operation {
            json["operation"] = json!(operation);
        }
        json
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::whole(format!("{}\n", self.to_json())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = self.header.map(|header| *header) {
            headers.insert(name, value);
        }
        response
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title, self.detail)
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let (status, title) = match &error {
            Error::InvalidArgument(_) => (StatusCode::BAD_REQUEST, "Bad request"),
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "Not found"),
            Error::AlreadyExists(_) => (StatusCode::CONFLICT, "Already exists"),
            Error::Conflict { .. } => (StatusCode::CONFLICT, "Conflict"),
            Error::TransactionTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "Transaction too large"),
            Error::ReaderExpired { .. } => (StatusCode::GONE, "Snapshot expired"),
            Error::DiskFull { .. } => (StatusCode::INSUFFICIENT_STORAGE, "Disk full"),
            Error::Closed | Error::Superseded | Error::ReadOnly { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "Database not available")
            }
            Error::TooBusy { .. } | Error::ExclusiveOpen { .. } => (StatusCode::SERVICE_UNAVAILABLE, BUSY),
            Error::Corruption(_) => (StatusCode::INTERNAL_SERVER_ERROR, "Database damaged"),
            error if error.is_commit_unknown() => (StatusCode::INTERNAL_SERVER_ERROR, "Outcome unknown"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
        };
        let detail = match &error {
            // The engine's remedy is one of the program that opens the database.
            Error::MergeFailed { function, .. } if error.to_string().contains("Builder::") => format!(
                "the value has operands of the merge function {function:?}, which this server does not have: read it \
                 with the program that defines the function"
            ),
            error => error.to_string(),
        };
        let problem = Problem::new(status, title, detail);
        if error.is_retryable() {
            return problem.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A busy server is no failure: its message hid the last failure for a minute.
    #[test]
    fn busy_is_no_failure_and_a_database_without_service_is() {
        assert!(Problem::busy("too many streams").failure().is_none());
        assert!(
            Problem::from(Error::ExclusiveOpen { begun_by: String::new(), age: std::time::Duration::ZERO })
                .failure()
                .is_none()
        );
        assert!(Problem::new(StatusCode::NOT_IMPLEMENTED, "Not implemented", "").failure().is_none());
        assert!(Problem::not_found("").failure().is_none());
        let (status, title, _) = Problem::from(Error::Closed).failure().map(|(s, t, d)| (s, t, d.to_owned())).unwrap();
        assert_eq!((status, title), (StatusCode::SERVICE_UNAVAILABLE, "Database not available"));
    }
}
