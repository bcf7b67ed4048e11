//! Bodies of responses: whole, or produced chunk by chunk as the client takes them.

use crate::{
    access::Pending,
    live::{Live, Source},
    place::{Pooled, in_pool},
    problem::Problem,
};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::{
    fmt,
    future::Future,
    io, mem,
    pin::Pin,
    task::{Context, Poll},
};

/// Bytes of a chunk, roughly.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Produces a body in chunks, in the pool: it may read the disk.
///
/// The next chunk is produced when the connection has sent the previous ones, so a slow client
/// holds about one.
pub trait Producer: Send + 'static {
    /// Returns the next chunk, or `None` after the last.
    fn next(&mut self) -> Result<Option<Bytes>, Problem>;
}

type Step = (Box<dyn Producer>, Result<Option<Bytes>, Problem>);

enum State {
    Whole(Bytes),
    Idle(Box<dyn Producer>),
    Busy(Pooled<Step>),
    Live(Live),
    Ended,
}

/// The body of a response.
pub struct Body {
    /// Sent first, if not empty.
    first: Bytes,
    state: State,
    /// Bytes to send; `None` if unknown.
    left: Option<u64>,
    /// Reports the request when the body is dropped.
    access: Option<Box<Pending>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Body {
    pub fn empty() -> Body {
        Body::whole(Bytes::new())
    }

    pub fn whole(bytes: impl Into<Bytes>) -> Body {
        let bytes = bytes.into();
        Body { left: Some(bytes.len() as u64), first: Bytes::new(), state: State::Whole(bytes), access: None }
    }

    /// Continues with a producer after the first bytes.
    pub fn of_producer(first: Bytes, producer: Box<dyn Producer>, len: Option<u64>) -> Body {
        Body { first, state: State::Idle(producer), left: len, access: None }
    }

    /// Returns a body whose chunks after the first may take forever to come. The first may be empty.
    pub fn live(first: Bytes, source: impl Source) -> Body {
        Body { first, state: State::Live(Live::new(source)), left: None, access: None }
    }

    /// Produces the first chunk, so that an error at the beginning becomes an error response.
    pub async fn produced(producer: impl Producer, len: Option<u64>) -> Result<Body, Problem> {
        let begin = move || {
            let mut producer: Box<dyn Producer> = Box::new(producer);
            let first = producer.next()?;
            Ok::<_, Problem>((producer, first))
        };
        Ok(match in_pool(begin).await?? {
            (_, None) => Body::empty(),
            (producer, Some(first)) => Body::of_producer(first, producer, len),
        })
    }

    /// Returns the bytes that are there already: all of a whole body.
    pub fn beginning(&self) -> &Bytes {
        match &self.state {
            State::Whole(bytes) => bytes,
            _ => &self.first,
        }
    }

    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// Splits a body that is produced into its first bytes and the producer.
    pub fn into_producer(self) -> Result<(Bytes, Box<dyn Producer>), Body> {
        match self.state {
            State::Idle(producer) => Ok((self.first, producer)),
            state => Err(Body { state, ..self }),
        }
    }

    /// Reports the request when the body is sent or given up.
    pub fn reported(self, access: Option<Box<Pending>>) -> Body {
        Body { access, ..self }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = if self.first.is_empty() {
            loop {
                match mem::replace(&mut self.state, State::Ended) {
                    State::Ended => return Poll::Ready(None),
                    State::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
                    State::Whole(bytes) => break bytes,
                    State::Idle(mut producer) => {
                        self.state = State::Busy(Pooled::spawn(move || {
                            let step = producer.next();
                            (producer, step)
                        }));
                    }
                    State::Live(mut live) => match live.poll_chunk(context) {
                        Poll::Ready(Ok(None)) => {
                            if let Some(access) = &mut self.access {
                                access.sent(0, true);
                            }
                            return Poll::Ready(None);
                        }
                        // The status is sent; the client notices the missing end.
                        Poll::Ready(Err(problem)) => return Poll::Ready(Some(Err(io::Error::other(problem)))),
                        chunk => {
                            self.state = State::Live(live);
                            let Poll::Ready(Ok(Some(chunk))) = chunk else { return Poll::Pending };
                            break chunk;
                        }
                    },
                    State::Busy(mut step) => {
                        let Poll::Ready(done) = Pin::new(&mut step).poll(context) else {
                            self.state = State::Busy(step);
                            return Poll::Pending;
                        };
                        match done {
                            Ok((_, Ok(None))) => {
                                if let Some(access) = &mut self.access {
                                    access.sent(0, true);
                                }
                                return Poll::Ready(None);
                            }
                            Ok((producer, Ok(Some(chunk)))) => {
                                self.state = State::Idle(producer);
                                break chunk;
                            }
                            // The status is sent; the client notices the missing end.
                            Ok((_, Err(problem))) => return Poll::Ready(Some(Err(io::Error::other(problem)))),
                            Err(panic) => return Poll::Ready(Some(Err(panic.into()))),
                        }
                    }
                }
            }
        } else {
            mem::take(&mut self.first)
        };
        self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
        let is_last = self.left == Some(0);
        if let Some(access) = &mut self.access {
            access.sent(chunk.len(), is_last);
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
