//! Connections between processes of one user on one machine: named pipes.
//!
//! The address is a directory. The pipe's name has the volume and the number of the directory, so
//! each path of it leads to the same pipe.
//!
//! Both ends accept only a peer of the same user: the pipe's access list has no other one, and both
//! check its owner, in case another user made a pipe of the name before. Clients of other machines
//! are refused.
//!
//! A write to a full pipe waits for the peer, and its cancellation can lose the number of bytes that
//! arrived. So a write that takes longer than its slice goes on: the caller repeats it with the same
//! bytes, or withdraws it, which ends the connection. It returns only once the pipe has all of them,
//! so they arrive even if this thread or this end of the pipe ends at once.

use super::{
    file::{SHARE_ALL, check},
    overlapped::{Event, Operation, milliseconds},
    pipe_user::User,
};
use parking_lot::Mutex;
use std::{
    fs,
    io::{self, Write},
    os::windows::{
        fs::OpenOptionsExt,
        io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle},
    },
    path::{Path, PathBuf},
    ptr::{null, null_mut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_BROKEN_PIPE, ERROR_NO_DATA, ERROR_PIPE_BUSY, ERROR_PIPE_CONNECTED, ERROR_PIPE_NOT_CONNECTED,
        GENERIC_READ, GENERIC_WRITE, INVALID_HANDLE_VALUE,
    },
    Storage::FileSystem::{
        CreateFileW, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OVERLAPPED, FILE_ID_INFO, FileIdInfo,
        GetFileInformationByHandleEx, OPEN_EXISTING, PIPE_ACCESS_DUPLEX, SECURITY_IDENTIFICATION,
        SECURITY_SQOS_PRESENT,
    },
    System::Pipes::{
        CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_UNLIMITED_INSTANCES,
        PIPE_WAIT, PeekNamedPipe, WaitNamedPipeW,
    },
};

/// Whether shared databases use them.
pub const HAS_LOCAL_SOCKETS: bool = true;

/// Bytes that a pipe keeps in each direction, and the longest write.
const BUFFER_BYTES: usize = 64 << 10;

/// Accepts connections for the database in a directory.
#[derive(Debug)]
pub struct LocalListener {
    dir: PathBuf,
    name: Vec<u16>,
    user: User,
    /// The end of the next connection. `None` if it could not be made.
    next: Mutex<Option<Waiting>>,
}

/// An end of a pipe that no client has, or that one has just got.
#[derive(Debug)]
struct Waiting {
    connecting: Operation,
    pipe: Arc<OwnedHandle>,
}

impl LocalListener {
    /// Listens. Only the owner of the directory's lock may call this.
    pub fn bind(dir: &Path) -> io::Result<LocalListener> {
        let listener =
            LocalListener { dir: dir.to_owned(), name: name_of(dir)?, user: User::current()?, next: Mutex::new(None) };
        *listener.next.lock() = Some(listener.new_end()?);
        Ok(listener)
    }

    fn new_end(&self) -> io::Result<Waiting> {
        let mode = PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
        let (access, len) = (PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED, BUFFER_BYTES as u32);
        // SAFETY: the name ends with a zero; the attributes are valid for the call.
        let made = self.user.with_private_attributes(|attributes| unsafe {
            CreateNamedPipeW(self.name.as_ptr(), access, mode, PIPE_UNLIMITED_INSTANCES, len, len, 0, attributes)
        })?;
        let pipe = owned(made)?;
        if !self.user.owns(pipe.as_handle())? {
            return Err(others());
        }
        let pipe = Arc::new(pipe);
        let mut connecting = Operation::new(&pipe)?;
        match connecting.connect() {
            // A client was quicker, and may have ended.
            Err(e) if !is_one_of(&e, &[ERROR_PIPE_CONNECTED, ERROR_NO_DATA]) => Err(e),
            _ => Ok(Waiting { connecting, pipe }),
        }
    }

    /// Returns the next connection, or `None` after `wait`. A write to the connection returns
    /// `WouldBlock` after `slice`.
    pub fn accept(&self, wait: Duration, slice: Duration) -> io::Result<Option<LocalStream>> {
        let mut next = self.next.lock();
        let mut end = match next.take() {
            Some(end) => end,
            None => self.new_end()?,
        };
        if end.connecting.is_pending() {
            match end.connecting.end_within(wait, None) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    *next = Some(end);
                    return Ok(None);
                }
                Err(e) if is_end(&e) => {}
                Err(e) => return Err(e),
            }
        }
        *next = self.new_end().ok();
        LocalStream::new(end.pipe, slice).map(Some)
    }

    /// Returns whether clients can find the pipe: the directory may have been replaced.
    pub fn is_reachable(&self) -> bool {
        name_of(&self.dir).is_ok_and(|name| name == self.name)
    }

    /// Listens again, for the directory that is there now.
    pub fn renew(&mut self, dir: &Path) -> io::Result<()> {
        *self = LocalListener::bind(dir)?;
        Ok(())
    }
}

/// A connection. The peer sees its end once this is dropped.
#[derive(Debug)]
pub struct LocalStream {
    pipe: Arc<OwnedHandle>,
    slice: Duration,
    is_shut: AtomicBool,
    /// Set with `is_shut`.
    shut: Event,
    reading: Mutex<Operation>,
    writing: Mutex<Operation>,
}

impl LocalStream {
    fn new(pipe: Arc<OwnedHandle>, slice: Duration) -> io::Result<LocalStream> {
        let [reading, writing] = [Operation::new(&pipe)?, Operation::new(&pipe)?].map(Mutex::new);
        Ok(LocalStream { pipe, slice, is_shut: AtomicBool::new(false), shut: Event::new()?, reading, writing })
    }

    /// Connects to the listener of a directory. Waits at most `slice`. Fails if there is none.
    ///
    /// A write returns `WouldBlock` after `slice`, so that the caller can check the time.
    pub fn connect(dir: &Path, slice: Duration) -> io::Result<LocalStream> {
        let name = name_of(dir)?;
        let pipe = match open(&name) {
            Err(e) if is_one_of(&e, &[ERROR_PIPE_BUSY]) => {
                // SAFETY: the name ends with a zero. Zero would mean a default.
                unsafe { WaitNamedPipeW(name.as_ptr(), milliseconds(slice).max(1)) };
                open(&name)?
            }
            opened => opened?,
        };
        if !User::current()?.owns(pipe.as_handle())? {
            return Err(others());
        }
        LocalStream::new(Arc::new(pipe), slice)
    }

    /// Reads the bytes that have arrived, or returns `WouldBlock`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reading = self.reading.lock();
        let len = match self.arrived() {
            _ if self.is_shut() => return Ok(0),
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(arrived) => arrived.min(buffer.len()),
            Err(e) if is_end(&e) => return Ok(0),
            Err(e) => return Err(e),
        };
        // The bytes are here, so this does not wait.
        let read = reading.read(len).and_then(|()| match reading.end_within(self.slice, None)? {
            Some(read) => Ok(read),
            None => reading.cancel(),
        });
        match read {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(read) => {
                buffer[..read].copy_from_slice(reading.bytes());
                Ok(read)
            }
            Err(e) if is_end(&e) => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Waits until a read does not block, at most for `wait`. Returns false after it.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        let mut reading = self.reading.lock();
        if self.is_shut() || !matches!(self.arrived(), Ok(0)) {
            return Ok(true);
        }
        // An error here is one of the next read, too.
        if reading.read(0).is_err() {
            return Ok(true);
        }
        let is_over = !matches!(reading.end_within(wait, Some(&self.shut)), Ok(None));
        let _ = reading.cancel();
        Ok(is_over || self.is_shut() || !matches!(self.arrived(), Ok(0)))
    }

    /// Makes later reads and writes of this process fail. The peer can still read earlier writes. Its
    /// connection ends when this process drops its handles.
    pub fn shut_down(&self) {
        self.is_shut.store(true, Ordering::Release);
        self.shut.set();
    }

    /// Gives up a write that has failed, and the connection. Returns false if the pipe had already
    /// taken all the bytes of that write.
    pub fn withdraw(&self) -> bool {
        self.shut_down();
        let mut writing = self.writing.lock();
        if !writing.is_pending() {
            return true;
        }
        let taken = writing.cancel();
        !taken.is_ok_and(|len| len == writing.bytes_given().len())
    }

    /// Begins a write, or goes on with it. Returns false after `slice`.
    fn write_whole(&self, writing: &mut Operation, bytes: &[u8]) -> io::Result<bool> {
        if self.is_shut() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !writing.is_pending() {
            writing.write(bytes)?;
        } else if bytes != writing.bytes_given() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "another write has not ended"));
        }
        match writing.end_within(self.slice, Some(&self.shut))? {
            Some(len) if len == bytes.len() => Ok(true),
            Some(_) => Err(io::ErrorKind::WriteZero.into()),
            None if self.is_shut() => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(false),
        }
    }

    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    fn arrived(&self) -> io::Result<usize> {
        let mut len = 0;
        let pipe = self.pipe.as_raw_handle();
        // SAFETY: the pipe is open, and null means that nothing is copied.
        check(unsafe { PeekNamedPipe(pipe, null_mut(), 0, null_mut(), &raw mut len, null_mut()) })?;
        Ok(len as usize)
    }
}

impl Write for &LocalStream {
    /// Returns once the pipe has taken the bytes. After `WouldBlock` the caller must repeat the call
    /// with the same bytes, or [withdraw](LocalStream::withdraw) them. Another error ends the connection.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = &buffer[..buffer.len().min(BUFFER_BYTES)];
        let mut writing = self.writing.lock();
        match self.write_whole(&mut writing, bytes) {
            Ok(true) => Ok(bytes.len()),
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            Err(e) => {
                // A part of the bytes may have arrived.
                self.shut_down();
                Err(e)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(name: &[u16]) -> io::Result<OwnedHandle> {
    // The listening process may identify this user, and not impersonate it.
    let flags = FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    let access = GENERIC_READ | GENERIC_WRITE;
    // SAFETY: the name ends with a zero.
    owned(unsafe { CreateFileW(name.as_ptr(), access, 0, null(), OPEN_EXISTING, flags, null_mut()) })
}

fn owned(made: windows_sys::Win32::Foundation::HANDLE) -> io::Result<OwnedHandle> {
    if made == INVALID_HANDLE_VALUE || made.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, so not owned elsewhere.
    Ok(unsafe { OwnedHandle::from_raw_handle(made) })
}

/// The name of the pipe of a directory, with a zero.
fn name_of(dir: &Path) -> io::Result<Vec<u16>> {
    let mut options = fs::OpenOptions::new();
    let dir = options.access_mode(0).share_mode(SHARE_ALL).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(dir)?;
    let mut found = FILE_ID_INFO::default();
    let (place, len) = ((&raw mut found).cast(), size_of::<FILE_ID_INFO>() as u32);
    // SAFETY: the handle is open, and the place has the length of the structure.
    check(unsafe { GetFileInformationByHandleEx(dir.as_raw_handle(), FileIdInfo, place, len) })?;
    let number = u128::from_le_bytes(found.FileId.Identifier);
    let name = format!(r"\\.\pipe\braiddb-{:x}-{number:x}", found.VolumeSerialNumber);
    Ok(name.encode_utf16().chain([0]).collect())
}

fn others() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the pipe is another user's")
}

fn is_one_of(error: &io::Error, codes: &[u32]) -> bool {
    codes.iter().any(|code| error.raw_os_error() == Some(*code as i32))
}

fn is_end(error: &io::Error) -> bool {
    is_one_of(error, &[ERROR_BROKEN_PIPE, ERROR_PIPE_NOT_CONNECTED, ERROR_NO_DATA])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests of threads and times")]

    use super::*;
    use std::{thread, time::Instant};

    const SLICE: Duration = Duration::from_millis(20);
    const WAIT: Duration = Duration::from_secs(10);

    fn pair(dir: &Path) -> (LocalListener, LocalStream, LocalStream) {
        let listener = LocalListener::bind(dir).unwrap();
        let client = LocalStream::connect(dir, SLICE).unwrap();
        let server = listener.accept(WAIT, SLICE).unwrap().unwrap();
        (listener, client, server)
    }

    fn read_all(stream: &LocalStream, len: usize) -> Vec<u8> {
        let (mut read, mut bytes) = (Vec::new(), [0; 10_000]);
        while read.len() < len {
            assert!(stream.wait_readable(WAIT).unwrap());
            match stream.try_read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => read.extend_from_slice(&bytes[..len]),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        read
    }

    #[test]
    fn ends_exchange_bytes_until_one_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let none = LocalStream::connect(dir.path(), SLICE).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let (listener, client, server) = pair(dir.path());
        assert!(listener.is_reachable());
        assert!(listener.accept(SLICE, SLICE).unwrap().is_none());
        (&client).write_all(b"put").unwrap();
        assert_eq!(read_all(&server, 3), b"put");
        assert!(!client.wait_readable(SLICE).unwrap());
        assert_eq!(client.try_read(&mut [0; 3]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        (&server).write_all(b"done").unwrap();
        server.shut_down();
        drop(server);
        assert_eq!(read_all(&client, 4), b"done", "what was written before the end arrives");
        assert!(client.wait_readable(WAIT).unwrap());
        assert_eq!(client.try_read(&mut [0; 3]).unwrap(), 0);
        assert!((&client).write_all(&[0; 100]).is_err());
    }

    /// Fills the pipe of a peer that does not read. Returns the number of bytes taken.
    fn fill(stream: &LocalStream, bytes: &[u8]) -> usize {
        let (mut at, mut refused) = (0, 0);
        while refused < 3 {
            match (&mut &*stream).write(&bytes[at..]) {
                Ok(len) => at += len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => refused += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(at < bytes.len(), "a pipe has a bound");
        at
    }

    fn bytes() -> Vec<u8> {
        (0..1_000_003_u32).map(|n| (n * 7 / 3) as u8).collect()
    }

    /// The peer does not read: writes return in time, and no byte is lost or sent twice.
    #[test]
    fn long_write_waits_for_its_reader_in_slices() {
        let dir = tempfile::tempdir().unwrap();
        let (_listener, client, server) = pair(dir.path());
        let bytes = bytes();
        let mut at = fill(&client, &bytes);
        thread::scope(|scope| {
            scope.spawn(|| {
                while at < bytes.len() {
                    match (&client).write(&bytes[at..]) {
                        Ok(len) => at += len,
                        Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
                    }
                }
                // All is taken: the end of the connection loses nothing.
                drop(client);
            });
            assert!(read_all(&server, bytes.len()) == bytes);
        });
        assert_eq!(server.try_read(&mut [0; 3]).unwrap(), 0);
    }

    /// A write returned before the pipe had its bytes, and the end of its thread cancelled it.
    #[test]
    fn last_write_of_ending_thread_arrives() {
        let dir = tempfile::tempdir().unwrap();
        let (_listener, client, server) = pair(dir.path());
        let bytes = bytes();
        for round in 0..20 {
            let len = 3 * BUFFER_BYTES + 1000 * round;
            thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let mut at = 0;
                    while at < len {
                        at += (&client).write(&bytes[at..len]).unwrap_or(0);
                    }
                });
                thread::sleep(SLICE);
                assert!(read_all(&server, len) == bytes[..len]);
                writing.join().unwrap();
            });
        }
    }

    #[test]
    fn withdrawn_write_has_not_arrived_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (_listener, client, server) = pair(dir.path());
        let bytes = bytes();
        let taken = fill(&client, &bytes);
        let other = (&client).write(&bytes[taken + 1..]).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput, "another write would lose the first one");
        assert!(client.withdraw());
        assert!((&client).write(b"k").is_err());
        drop(client);
        let read = read_all(&server, bytes.len());
        assert!(read.len() < taken + BUFFER_BYTES && bytes.starts_with(&read), "{} of {taken}", read.len());
    }

    /// The peer has run the request, so it must not count as one that was not sent.
    #[test]
    fn write_that_arrived_before_its_withdrawal_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (_listener, client, server) = pair(dir.path());
        let bytes = bytes();
        let taken = fill(&client, &bytes);
        let all = taken + BUFFER_BYTES.min(bytes.len() - taken);
        assert!(read_all(&server, all) == bytes[..all]);
        assert!(!client.withdraw());
    }

    #[test]
    fn shut_down_ends_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (_listener, client, _server) = pair(dir.path());
        let began = Instant::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| client.wait_readable(3 * WAIT).unwrap());
            thread::sleep(5 * SLICE);
            client.shut_down();
            assert!(waiting.join().unwrap());
        });
        assert!(began.elapsed() < WAIT);
        assert_eq!(client.try_read(&mut [0; 3]).unwrap(), 0);
    }

    #[test]
    fn another_path_of_the_directory_has_the_same_pipe() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("x")).unwrap();
        let listener = LocalListener::bind(dir.path()).unwrap();
        LocalStream::connect(&dir.path().join("x").join(".."), SLICE).unwrap();
        assert!(LocalStream::connect(&dir.path().join("x"), SLICE).is_err());
        drop(listener);
        assert!(LocalStream::connect(dir.path(), SLICE).is_err());
    }
}
