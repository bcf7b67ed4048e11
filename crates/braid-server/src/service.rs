//! The service: shared state, checks of each request, and the handler of each resource.

#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{
    access::{AccessLog, Pending},
    backup, batch,
    body::Body,
    changes,
    compress::compress,
    guard,
    journal::Journal,
    load::{Kind, Load},
    metrics,
    monitor::Monitor,
    opened::{self, Opened},
    options::{Limits, Options},
    page,
    place::Place,
    problem::Problem,
    query::{self, Query},
    record,
    route::Route,
    rules::Checks,
    scan,
    snapshots::Snapshots,
    stats,
    store::Store,
    ticket::{self, Tickets},
    token::Token,
    trees,
    turns::Turns,
    upload,
};
use braiddb::Db;
use braiddb_typed::text as tuple_text;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HeaderValue},
    http::request::Parts,
};
use std::{
    borrow::Cow,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::sync::Semaphore;

/// The description of the service, for other tools.
const OPENAPI: &str = include_str!("../openapi.json");

/// The result of a handler. A problem becomes an error response.
pub type Answer = Result<Response<Body>, Problem>;

/// State that all connections share.
pub struct Service {
    store: Store,
    token: Token,
    write: bool,
    limits: Limits,
    place: Place,
    checks: Checks,
    uploads: Semaphore,
    uploads_max: usize,
    codings: Arc<Semaphore>,
    access: Option<Arc<dyn AccessLog>>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    is_encrypted: bool,
    /// Held while a tree is created or dropped, so that the preconditions hold.
    tree_changes: Arc<Mutex<()>>,
    snapshots: Arc<Snapshots>,
    streams: Turns,
    tickets: Tickets,
    backups: Turns,
    /// Responses by the hundreds of their status.
    responses: [AtomicU64; 6],
    load: Load,
    monitor: Monitor,
    name: Option<String>,
    journal: Option<Journal>,
}

impl Service {
    pub fn new(store: Store, options: Options, workers: usize) -> io::Result<Service> {
        let is_encrypted = options.is_encrypted();
        let Options { token, write, limits, rules, name, access, journal, .. } = options;
        if write && store.is_follower() {
            let message = "a follower cannot write: serve the database of its owner, or without `write`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let token = token.map_or_else(Token::generate, Token::given)?;
        let uploads_max = limits.uploads.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Service {
            store,
            token,
            write,
            place: Place::new(workers),
            checks: Checks::new(rules),
            uploads: Semaphore::new(uploads_max),
            uploads_max,
            codings: Arc::new(Semaphore::new(limits.codings.min(Semaphore::MAX_PERMITS))),
            access,
            #[cfg(feature = "tls")]
            tls: options.tls,
            is_encrypted,
            tree_changes: Arc::default(),
            snapshots: Arc::new(Snapshots::new(&limits)?),
            streams: Turns::new(limits.streams),
            tickets: Tickets::new(limits.ticket_life),
            backups: Turns::new(limits.backups),
            limits,
            responses: Default::default(),
            load: Load::default(),
            monitor: Monitor::default(),
            name,
            journal,
        })
    }

    pub fn token(&self) -> &str {
        self.token.text()
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn uploads(&self) -> &Semaphore {
        &self.uploads
    }

    pub fn running_uploads(&self) -> u64 {
        self.uploads_max.saturating_sub(self.uploads.available_permits()) as u64
    }

    /// Turns of responses that are compressed.
    pub fn codings(&self) -> &Arc<Semaphore> {
        &self.codings
    }

    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    pub fn tree_changes(&self) -> &Arc<Mutex<()>> {
        &self.tree_changes
    }

    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    pub fn streams(&self) -> &Turns {
        &self.streams
    }

    pub fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    pub fn backups(&self) -> &Turns {
        &self.backups
    }

    /// Returns the responses so far by the hundreds of their status, from 1xx.
    pub fn responses(&self) -> [u64; 5] {
        std::array::from_fn(|class| self.responses[class + 1].load(Ordering::Relaxed))
    }

    pub fn load(&self) -> &Load {
        &self.load
    }

    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub fn may_write(&self) -> bool {
        self.write
    }

    pub fn is_follower(&self) -> bool {
        self.store.is_follower()
    }

    /// Returns the latest state of the database.
    pub fn db(&self) -> Db {
        self.store.db()
    }

    /// Opens a tree of either kind by its percent-encoded name.
    pub fn opened(&self, name: &str) -> Result<Opened, Problem> {
        Ok(opened::open(&self.db(), &query::decode_name(name)?)?)
    }

    /// Decodes a key of the path.
    pub fn key<'k>(&self, key: &'k str, query: Query<'_>) -> Result<Cow<'k, [u8]>, Problem> {
        typed_key(query::decode(key)?, query)
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let (request, body) = request.into_parts();
        let access = self.access.as_ref().map(|log| Pending::new(log, &request, peer));
        let mut body = Some(body);
        let began = Instant::now();
        let response = self.handle(&request, &mut body).await.unwrap_or_else(|problem| {
            self.monitor.note(&problem);
            problem.into_response()
        });
        if let Some(kind) = Kind::of(Route::of(request.uri.path()), request.method.as_str())
            && !is_refused(response.status())
        {
            self.load.note(kind, began.elapsed());
        }
        let mut response = compress(self, &request, response).await;
        // A handler leaves a body that it did not receive whole.
        let is_given_up = response.status() == StatusCode::REQUEST_TIMEOUT;
        if let Some(unread) = body
            && (is_given_up || !upload::discard(self, &request.headers, unread).await)
        {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let headers = response.headers_mut();
        // Values are the users' bytes: no browser shall guess that they are a page.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        let class = usize::from(response.status().as_u16() / 100);
        if let Some(count) = self.responses.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let Some(mut access) = access else { return response };
        access.answered(response.status(), !response.body().is_end_stream());
        response.map(|body| body.reported(Some(access)))
    }

    /// Takes the body if the resource needs it.
    async fn handle(&self, request: &Parts, body: &mut Option<Incoming>) -> Answer {
        guard::check_origin(&request.method, &request.uri, &request.headers, self.is_encrypted)?;
        let route = Route::of(request.uri.path());
        let query = request.uri.query();
        let is_permitted = match route {
            Some(Route::Health | Route::Ready | Route::Page(_)) => true,
            Some(Route::Changes) => self.tickets.is_in(query),
            _ => false,
        };
        if !is_permitted {
            let checked = guard::check_token(&self.token, &request.headers);
            checked.map_err(
                |problem| if route == Some(Route::Changes) { ticket::explain(problem, query) } else { problem },
            )?;
        }
        let Some(route) = route else {
            return Err(Problem::not_found(
                "there are /trees, /trees/{tree}, /trees/{tree}/, /trees/{tree}/{key}, /batch, /changes, /ticket, /backup, /stats, /metrics, /health, /ready, /openapi.json and the page at /",
            ));
        };
        let method = request.method.as_str();
        match (route, method) {
            (Route::Record(tree, key), "GET" | "HEAD") => record::get(self, request, tree, key).await,
            (Route::Scan(tree), "GET" | "HEAD") => scan::scan(self, request, tree).await,
            (Route::Backup, "GET" | "HEAD") => backup::download(self, request).await,
            (Route::OpenApi, "GET" | "HEAD") => Ok(typed(StatusCode::OK, "application/json", Body::whole(OPENAPI))),
            (Route::Changes, "GET" | "HEAD") => changes::changes(self, request).await,
            (Route::Trees, "GET" | "HEAD") => trees::list(self, request).await,
            (Route::Page(name), "GET" | "HEAD") => page::file(request, name),
            (Route::Stats, "GET" | "HEAD") => stats::stats(self, request).await,
            (Route::Metrics, "GET" | "HEAD") => metrics::metrics(self).await,
            (Route::Ticket, "POST") => ticket::post(self, request),
            (Route::Health, "GET" | "HEAD") => Ok(plain(StatusCode::OK, "ok\n")),
            (Route::Ready, "GET" | "HEAD") => metrics::ready(self),
            (Route::Record(..), "PUT" | "DELETE") | (Route::Tree(_), "PUT" | "DELETE") | (Route::Batch, "POST")
                if !self.write =>
            {
                let detail = "the server only reads: start it with --write, if this client may change the database";
                Err(Problem::new(StatusCode::FORBIDDEN, "Read-only", detail))
            }
            (Route::Record(tree, key), "PUT") => record::put(self, request, body, tree, key).await,
            (Route::Record(tree, key), "DELETE") => record::delete(self, request, tree, key).await,
            (Route::Tree(tree), "PUT") => trees::create(self, request, body.as_ref(), tree).await,
            (Route::Tree(tree), "DELETE") => trees::drop(self, request, body.as_ref(), tree).await,
            (Route::Batch, "POST") => batch::post(self, request, body).await,
            (route, _) => Err(not_allowed(route, &request.method)),
        }
    }
}

/// Returns whether a request was refused before the database was asked.
fn is_refused(status: StatusCode) -> bool {
    let asked = [
        StatusCode::NOT_FOUND,
        StatusCode::CONFLICT,
        StatusCode::GONE,
        StatusCode::PRECONDITION_FAILED,
        StatusCode::RANGE_NOT_SATISFIABLE,
    ];
    status.is_client_error() && !asked.contains(&status)
}

/// Returns the bytes of a key; with `codec=tuple` the text is a JSON array.
pub fn typed_key<'k>(text: Cow<'k, [u8]>, query: Query<'_>) -> Result<Cow<'k, [u8]>, Problem> {
    match query.bytes("codec")?.as_deref() {
        None => Ok(text),
        Some(b"tuple") => {
            let json = serde_json::from_slice(&text).map_err(|error| error.to_string());
            let packed = json.and_then(|json| tuple_text::from_json(&json));
            packed.map(Cow::Owned).map_err(|why| {
                Problem::bad_request(format!("the key is no tuple: {why}; give a JSON array, such as [\"pt\",7]"))
            })
        }
        Some(_) => Err(Problem::bad_request("the only codec of keys is tuple: codec=tuple")),
    }
}

fn not_allowed(route: Route<'_>, method: &Method) -> Problem {
    let allowed = route.methods();
    let hint = match route {
        Route::Tree(_) if matches!(*method, Method::GET | Method::HEAD) => {
            "; the records of a tree are at /trees/{tree}/, with a slash at the end"
        }
        _ => "",
    };
    let detail = format!("{method} is not possible here; these methods are: {allowed}{hint}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
        .with_header(header::ALLOW, HeaderValue::from_static(allowed))
}

pub fn new_response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

pub fn plain(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", Body::whole(text))
}

pub fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = new_response(status, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
