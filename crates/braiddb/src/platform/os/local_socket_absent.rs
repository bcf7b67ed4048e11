//! Connections between processes, on systems for which they are not implemented.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

/// Whether local sockets are implemented for this system.
pub const HAS_LOCAL_SOCKETS: bool = false;

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "sharing a database among processes is not supported on this system yet")
}

/// Never exists.
#[derive(Debug)]
pub struct LocalListener(std::convert::Infallible);

impl LocalListener {
    /// Fails.
    pub fn bind(_dir: &Path) -> io::Result<LocalListener> {
        Err(unsupported())
    }

    /// Never called.
    pub fn accept(&self, _wait: Duration, _slice: Duration) -> io::Result<Option<LocalStream>> {
        match self.0 {}
    }

    /// Never called.
    pub fn renew(&mut self, _dir: &Path) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    pub fn is_reachable(&self) -> bool {
        match self.0 {}
    }
}

/// Never exists.
#[derive(Debug)]
pub struct LocalStream(std::convert::Infallible);

impl LocalStream {
    /// Fails.
    pub fn connect(_dir: &Path, _slice: Duration) -> io::Result<LocalStream> {
        Err(unsupported())
    }

    /// Never called.
    pub fn try_read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    /// Never called.
    pub fn wait_readable(&self, _wait: Duration) -> io::Result<bool> {
        match self.0 {}
    }

    /// Never called.
    pub fn shut_down(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn withdraw(&self) -> bool {
        match self.0 {}
    }
}

impl Write for &LocalStream {
    fn write(&mut self, _buffer: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}
