//! A connection: its socket with a limit on waiting for the client, and its end at a stop.

use crate::{options::Limits, service::Service};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    future::{Future, poll_fn},
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};

/// Bytes of the buffers for input and output of a connection. A chunk of a body comes on top.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum header fields of a request.
const HEADERS_MAX: usize = 64;

/// Serves a connection until its end, or until the running request is answered after a stop.
pub async fn serve(service: Arc<Service>, stream: TcpStream, mut stop: watch::Receiver<bool>) {
    let limits = service.limits();
    // Responses are written whole; waiting for more would delay them.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(PatientStream::new(stream, limits));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_header_size(limits.head_bytes)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES.max(limits.head_bytes));
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, io::Error>(service.answer(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(io, answer));
    // An error is a client that went away, sent no HTTP, or was too slow.
    if first_of(connection.as_mut(), stopped(&mut stop)).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
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
        now + self.left
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
struct PatientStream {
    stream: TcpStream,
    patience: Patience,
    /// Begin of the present wait, and its limit.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl PatientStream {
    fn new(stream: TcpStream, limits: &Limits) -> PatientStream {
        PatientStream { stream, patience: Patience::new(limits), waiting: None }
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
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
