//! A body whose next chunk may take forever to come.
//!
//! A chunk is made when the connection asks for it, so a slow client holds one. The drop of the
//! body, by a client that went away or by the end of the server, drops everything.

use crate::problem::Problem;
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Makes the chunks of a body.
pub trait Source: Send + Sized + 'static {
    /// Returns the next chunk, or `None` after the last.
    fn next(self) -> impl Future<Output = Result<Option<(Bytes, Self)>, Problem>> + Send;
}

type Next = Pin<Box<dyn Future<Output = Result<Option<(Bytes, Live)>, Problem>> + Send>>;

/// The chunks that a [`Source`] makes.
pub struct Live(Next);

impl Live {
    pub fn new(source: impl Source) -> Live {
        Live(Box::pin(async move {
            let next = source.next().await?;
            Ok(next.map(|(chunk, source)| (chunk, Live::new(source))))
        }))
    }

    /// Polls for the next chunk. After the last one or an error, it must not be polled again.
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        let Poll::Ready(next) = self.0.as_mut().poll(context) else { return Poll::Pending };
        Poll::Ready(next.map(|next| {
            let (chunk, after) = next?;
            *self = after;
            Some(chunk)
        }))
    }
}
