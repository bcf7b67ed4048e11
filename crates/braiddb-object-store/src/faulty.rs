//! A bucket like S3's for tests, and a connection to it that fails on request.

use async_trait::async_trait;
use braiddb::platform::{Runtime, SystemRuntime};
use bytes::Bytes;
use futures_util::{StreamExt, stream, stream::BoxStream};
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart, path::Path,
};
use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fmt::{self, Debug, Display},
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Objects with ETags that are hashes of their contents, as in S3.
#[derive(Debug, Default)]
pub struct Bucket {
    objects: Mutex<BTreeMap<Path, Bytes>>,
}

fn etag_of(bytes: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn missing(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "no such key".into() }
}

impl Bucket {
    /// A bucket with the same objects.
    pub fn copy(&self) -> Arc<Bucket> {
        Arc::new(Bucket { objects: Mutex::new(self.objects.lock().unwrap().clone()) })
    }

    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().map(Path::to_string).collect()
    }

    pub fn get(&self, name: &str) -> Option<Bytes> {
        self.objects.lock().unwrap().get(&Path::from(name)).cloned()
    }

    pub fn insert(&self, name: &str, bytes: impl Into<Bytes>) {
        self.objects.lock().unwrap().insert(Path::from(name), bytes.into());
    }

    fn put(&self, path: &Path, bytes: Bytes, mode: &PutMode) -> Result<PutResult> {
        let mut objects = self.objects.lock().unwrap();
        let failed = |what: &str| Error::Precondition { path: path.to_string(), source: what.into() };
        match (mode, objects.get(path)) {
            (PutMode::Create, Some(_)) => {
                return Err(Error::AlreadyExists { path: path.to_string(), source: "412".into() });
            }
            (PutMode::Update(_), None) => return Err(failed("404")),
            (PutMode::Update(version), Some(found)) if version.e_tag != Some(etag_of(found)) => {
                return Err(failed("412"));
            }
            _ => {}
        }
        let e_tag = Some(etag_of(&bytes));
        objects.insert(path.clone(), bytes);
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    fn read(&self, path: &Path, options: &GetOptions) -> Result<GetResult> {
        let bytes = self.objects.lock().unwrap().get(path).cloned().ok_or_else(|| missing(path))?;
        let meta = meta_of(path, &bytes);
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|e| failure(&e.to_string()))?,
            None => 0..meta.size,
        };
        let part = bytes.slice(range.start as usize..range.end as usize);
        let payload = GetResultPayload::Stream(stream::iter([Ok(part)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::new(), extensions: Default::default() })
    }

    fn list(&self, prefix: Option<&Path>) -> ListResult {
        let root = Path::default();
        let prefix = prefix.unwrap_or(&root);
        let objects = self.objects.lock().unwrap();
        let is_child = |path: &Path| path.prefix_match(prefix).is_some_and(|parts| parts.count() == 1);
        let found = objects.iter().filter(|(path, _)| is_child(path)).map(|(path, bytes)| meta_of(path, bytes));
        ListResult { objects: found.collect(), common_prefixes: Vec::new(), extensions: Default::default() }
    }
}

fn meta_of(path: &Path, bytes: &Bytes) -> ObjectMeta {
    ObjectMeta {
        location: path.clone(),
        last_modified: Default::default(),
        size: bytes.len() as u64,
        e_tag: Some(etag_of(bytes)),
        version: None,
    }
}

pub fn failure(text: &str) -> Error {
    Error::Generic { store: "faulty", source: text.into() }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The server replies with code 503 and does nothing.
    Refused,
    /// The request is performed and its reply is lost.
    ReplyLost,
    /// The request is performed after the client gave up waiting.
    Late,
}

/// A moment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

type Choose = dyn Fn(u64) -> Fault + Send + Sync;
type Meanwhile = dyn FnOnce() + Send;

/// A connection to a bucket. The client stalls once at a chosen request while others go on.
pub struct Faulty {
    bucket: Arc<Bucket>,
    shared: Arc<Shared>,
}

struct Shared {
    requests: AtomicU64,
    choose: Box<Choose>,
    stall: Mutex<Option<(u64, Moment, Box<Meanwhile>)>>,
    /// Held while others go on.
    meanwhile: Mutex<()>,
    in_flight: AtomicU64,
    late: Duration,
}

struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

impl Faulty {
    pub fn new(bucket: &Arc<Bucket>, choose: impl Fn(u64) -> Fault + Send + Sync + 'static) -> Arc<Faulty> {
        let (requests, stall) = (AtomicU64::new(0), Mutex::new(None));
        let (meanwhile, in_flight, late) = (Mutex::new(()), AtomicU64::new(0), Duration::from_millis(60));
        let shared = Shared { requests, choose: Box::new(choose), stall, meanwhile, in_flight, late };
        Arc::new(Faulty { bucket: Arc::clone(bucket), shared: Arc::new(shared) })
    }

    pub fn faultless(bucket: &Arc<Bucket>) -> Arc<Faulty> {
        Faulty::new(bucket, |_| Fault::None)
    }

    /// Runs `meanwhile` at a moment of the request with this number.
    pub fn stall(&self, request: u64, moment: Moment, meanwhile: impl FnOnce() + Send + 'static) {
        *self.shared.stall.lock().unwrap() = Some((request, moment, Box::new(meanwhile)));
    }

    /// Waits until no request is performed any more, also of a client that gave up waiting. A stall
    /// that was not reached is dropped.
    pub fn settle(&self) {
        drop(self.shared.stall.lock().unwrap().take());
        drop(self.shared.meanwhile.lock().unwrap());
        while self.shared.in_flight.load(Ordering::Acquire) > 0 {
            SystemRuntime::new().sleep_us(1_000);
        }
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn perform<T>(self: Arc<Self>, request: impl FnOnce() -> Result<T>) -> Result<T> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let _in_flight = InFlight(&self.in_flight);
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fault = (self.choose)(number);
        self.stall_at(number, Moment::Before);
        if fault == Fault::Refused {
            self.stall_at(number, Moment::After);
            return Err(failure("503 Slow Down"));
        }
        if fault == Fault::Late {
            tokio::time::sleep(self.late).await;
        }
        let reply = request();
        self.stall_at(number, Moment::After);
        match fault {
            Fault::ReplyLost | Fault::Late => Err(failure("the connection was closed")),
            _ => reply,
        }
    }

    fn stall_at(&self, number: u64, moment: Moment) {
        let mut stall = self.stall.lock().unwrap();
        if stall.as_ref().is_some_and(|(at, when, _)| (*at, *when) == (number, moment)) {
            let (.., meanwhile) = stall.take().unwrap();
            let _meanwhile = self.meanwhile.lock().unwrap();
            drop(stall);
            meanwhile();
        }
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (bucket, path) = (Arc::clone(&self.bucket), path.clone());
        // A late request is performed although its client has dropped the future.
        let request = Arc::clone(&self.shared).perform(move || bucket.put(&path, payload.into(), &options.mode));
        tokio::spawn(request).await.unwrap()
    }

    async fn put_multipart_opts(&self, path: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Arc::clone(&self.shared).perform(|| Ok(())).await?;
        let (bucket, shared) = (Arc::clone(&self.bucket), Arc::clone(&self.shared));
        Ok(Box::new(Upload { bucket, shared, path: path.clone(), parts: Arc::default(), next: 0 }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        Arc::clone(&self.shared).perform(|| self.bucket.read(path, &options)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (bucket, shared) = (Arc::clone(&self.bucket), Arc::clone(&self.shared));
        let delete = move |path: Result<Path>| {
            let (bucket, shared) = (Arc::clone(&bucket), Arc::clone(&shared));
            async move {
                let path = path?;
                let request = shared.perform(move || {
                    bucket.objects.lock().unwrap().remove(&path);
                    Ok(path)
                });
                tokio::spawn(request).await.unwrap()
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter([Err(failure("use list_with_delimiter"))]).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        Arc::clone(&self.shared).perform(|| Ok(self.bucket.list(prefix))).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(failure("no copies"))
    }
}

#[derive(Clone)]
struct Upload {
    bucket: Arc<Bucket>,
    shared: Arc<Shared>,
    path: Path,
    parts: Arc<Mutex<BTreeMap<u64, Bytes>>>,
    next: u64,
}

impl Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upload")
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (parts, number) = (Arc::clone(&self.parts), self.next);
        self.next += 1;
        Box::pin(Arc::clone(&self.shared).perform(move || {
            parts.lock().unwrap().insert(number, data.into());
            Ok(())
        }))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let upload = self.clone();
        let request = Arc::clone(&self.shared).perform(move || {
            let parts = upload.parts.lock().unwrap();
            if parts.len() as u64 != upload.next {
                return Err(failure("parts are missing"));
            }
            upload.bucket.put(&upload.path, parts.values().flatten().copied().collect(), &PutMode::Overwrite)
        });
        tokio::spawn(request).await.unwrap()
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.lock().unwrap().clear();
        Ok(())
    }
}
