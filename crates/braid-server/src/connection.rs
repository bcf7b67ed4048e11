//! A connection: its socket with a limit on waiting for the client, and its end at a stop.

use crate::{changes::EVENT_STREAM, options::Limits, service::Service};
use hyper::{header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    future::{Future, poll_fn},
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::{Instant, Sleep, sleep_until, timeout},
};

/// Bytes of the buffers for input and output of a connection. A chunk of a body comes on top.
const BUFFER_BYTES: usize = 64 << 10;
/// Time and bytes of a client that still sends a refused body, before the connection is reset.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 4 << 20;
/// Time for a client to take the end of a change stream after a stop.
const STREAM_END_TIME: Duration = Duration::from_secs(1);
/// Replaces longer times, which would overflow an `Instant`.
pub const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Maximum header fields of a request.
const HEADERS_MAX: usize = 64;

/// Bytes that may wait in the socket's buffer. More would hide a slow client for as long as
/// its buffer takes to drain: the system reports room when half of them are sent.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 128 << 10;

/// Serves a connection until its end, or until the running request is answered after a stop.
pub async fn serve(service: Arc<Service>, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<bool>) {
    // Responses are written whole; waiting for more would delay them.
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    let lingers = Arc::new(AtomicBool::new(false));
    let stream = PatientStream::new(stream, service.limits(), Arc::clone(&lingers));
    #[cfg(feature = "tls")]
    if service.tls().is_some() {
        // On the heap, so that connections without TLS are not larger for it.
        return Box::pin(serve_encrypted(service, stream, peer, lingers, stop)).await;
    }
    serve_http(service, stream, peer, lingers, stop).await;
}

#[cfg(feature = "tls")]
async fn serve_encrypted(
    service: Arc<Service>,
    stream: PatientStream,
    peer: SocketAddr,
    lingers: Arc<AtomicBool>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(tls) = service.tls() else { return };
    // A connection counts against their limit from its beginning.
    let Ok(Some(stream)) = first_of(tls.accept(stream, service.limits()), stopped(&mut stop)).await else { return };
    serve_http(service, stream, peer, lingers, stop).await;
}

async fn serve_http(
    service: Arc<Service>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    lingers: Arc<AtomicBool>,
    mut stop: watch::Receiver<bool>,
) {
    let limits = service.limits();
    let io = TokioIo::new(stream);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time.min(FAR))
        .max_header_size(limits.head_bytes)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES.max(limits.head_bytes));
    let has_stream = Arc::new(AtomicBool::new(false));
    let streams = Arc::clone(&has_stream);
    let answer = service_fn(move |request| {
        let (service, lingers, streams) = (Arc::clone(&service), Arc::clone(&lingers), Arc::clone(&streams));
        async move {
            let response = service.answer(request, peer).await;
            if response.headers().contains_key(header::CONNECTION) {
                lingers.store(true, Ordering::Relaxed);
            }
            let content_type = response.headers().get(header::CONTENT_TYPE);
            streams.store(content_type.is_some_and(|name| name == EVENT_STREAM), Ordering::Relaxed);
            Ok::<_, io::Error>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(io, answer));
    // An error is a client that went away, sent no HTTP, or was too slow.
    if first_of(connection.as_mut(), stopped(&mut stop)).await.is_err() {
        connection.as_mut().graceful_shutdown();
        if has_stream.load(Ordering::Relaxed) {
            // A client that takes nothing would delay the end of the server.
            let _ = timeout(STREAM_END_TIME, connection).await;
        } else {
            let _ = connection.await;
        }
    }
}

/// Waits for the stop of the server.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error: the server is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Returns the output of the future that is ready first, the second one's as an error.
pub async fn first_of<A: Future, B: Future>(a: A, b: B) -> Result<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        b.as_mut().poll(context).map(Err)
    })
    .await
}

/// Time that a connection may still wait for its client. Waiting uses it up, bytes add to it.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    left: Duration,
    max: Duration,
    rate_min: u64,
}

impl Patience {
    pub fn new(limits: &Limits) -> Patience {
        Patience { left: limits.patience, max: limits.patience, rate_min: limits.rate_min.max(1) }
    }

    pub fn deadline(&self, now: Instant) -> Instant {
        now + self.left.min(FAR)
    }

    pub fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    pub fn moved(&mut self, bytes: usize) {
        let micros = (bytes as u64).saturating_mul(1_000_000) / self.rate_min;
        self.left = self.left.saturating_add(Duration::from_micros(micros)).min(self.max);
    }
}

/// A socket whose writes fail if the client takes bytes too slowly.
///
/// A close with unread input resets the connection, and the reset may overtake the response. So
/// after a refusal that leaves a body unread, the shutdown reads and drops input for a while.
struct PatientStream {
    stream: TcpStream,
    /// The last response leaves a body unread.
    lingers: Arc<AtomicBool>,
    lingering: Option<Lingering>,
    patience: Patience,
    /// Begin of the present wait, and its limit.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// The wait for the client's end after the last response.
struct Lingering {
    end: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl PatientStream {
    fn new(stream: TcpStream, limits: &Limits, lingers: Arc<AtomicBool>) -> PatientStream {
        PatientStream { stream, lingers, lingering: None, patience: Patience::new(limits), waiting: None }
    }

    /// Drops input until its end or a limit.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            end: Box::pin(sleep_until(Instant::now() + LINGER_TIME)),
            bytes_left: LINGER_BYTES,
        });
        let mut room = [MaybeUninit::uninit(); 8 << 10];
        while lingering.bytes_left > 0 && lingering.end.as_mut().poll(context).is_pending() {
            let mut read = ReadBuf::uninit(&mut room);
            let result = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
            if result.is_err() || read.filled().is_empty() {
                break;
            }
            lingering.bytes_left = lingering.bytes_left.saturating_sub(read.filled().len());
        }
        Poll::Ready(())
    }

    fn written(&mut self, context: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = result {
            if let Some((since, _)) = self.waiting.take() {
                self.patience.waited(since.elapsed());
            }
            self.patience.moved(*result.as_ref().unwrap_or(&0));
            return Poll::Ready(result);
        }
        let (_, limit) = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(self.patience.deadline(now))))
        });
        limit.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if self.lingers.load(Ordering::Relaxed) { self.poll_linger(context).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}
