//! Connections between processes of one user on one machine: Unix domain sockets.
//!
//! The address is a directory, not a path. The socket file is `.socket` in the directory. A path
//! above [`PATH_LEN_MAX`] does not fit a socket address: Linux then reaches the file through
//! `/proc/self/fd`. Where neither works (other systems, file systems without sockets), the file is
//! in `/tmp`, and its name has the directory's device and inode number.
//!
//! Both ends accept only a peer of the same effective user: the file has mode 0600, a client checks
//! its owner, and Linux reports the peer's user.

#![expect(clippy::disallowed_methods, reason = "socket files, which no Vfs has")]

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    io::retry_on_intr,
    net::{AddressFamily, SocketAddrUnix, SocketType},
    process::geteuid,
    time::Timespec,
};
use std::{
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Whether local sockets are implemented for this system.
pub const HAS_LOCAL_SOCKETS: bool = true;

/// Name of the socket file. Hidden files may lie beside a new database.
const NAME: &str = ".socket";

/// Maximum bytes of a path in a socket address; 103 on Apple systems.
const PATH_LEN_MAX: usize = 100;

const FALLBACK_DIR: &str = "/tmp";

/// Accepts connections for the database in a directory.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    file: SocketFile,
}

impl LocalListener {
    /// Listens, and replaces the socket file of an earlier process. Only the owner of the
    /// directory's lock may call this.
    pub fn bind(dir: &Path) -> io::Result<LocalListener> {
        let inside = SocketFile::inside(dir).and_then(LocalListener::bind_to);
        inside.or_else(|_| LocalListener::bind_to(SocketFile::fallback(dir)?))
    }

    fn bind_to(file: SocketFile) -> io::Result<LocalListener> {
        match fs::remove_file(&file.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&file.path)?;
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(LocalListener { listener, file })
    }

    /// Returns the next connection, or `None` after `wait`. Ignores peers of other users.
    pub fn accept(&self, wait: Duration) -> io::Result<Option<LocalStream>> {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let wait = Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?;
        if poll(&mut fds, Some(&wait)).or_else(|e| if e == rustix::io::Errno::INTR { Ok(0) } else { Err(e) })? == 0 {
            return Ok(None);
        }
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                Ok(is_same_user(&stream).then_some(LocalStream { stream }))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns whether clients can find the socket: another program may remove the file.
    pub fn is_reachable(&self) -> bool {
        fs::symlink_metadata(&self.file.path).is_ok_and(|found| found.file_type().is_socket())
    }

    /// Makes the socket file again.
    pub fn renew(&mut self, dir: &Path) -> io::Result<()> {
        let mut old = std::mem::replace(self, LocalListener::bind(dir)?);
        // Its drop must not remove the new file.
        old.file.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file.path);
    }
}

/// A connection.
#[derive(Debug)]
pub struct LocalStream {
    stream: UnixStream,
}

impl LocalStream {
    /// Connects to the listener of a directory. Never waits. Fails if there is none.
    ///
    /// A read or write returns `WouldBlock` after `slice`, so that the caller can check the time.
    pub fn connect(dir: &Path, slice: Duration) -> io::Result<LocalStream> {
        let inside = SocketFile::inside(dir).and_then(|file| connect_to(&file));
        let stream = inside.or_else(|_| connect_to(&SocketFile::fallback(dir)?))?;
        stream.set_read_timeout(Some(slice))?;
        stream.set_write_timeout(Some(slice))?;
        Ok(LocalStream { stream })
    }

    /// Returns a second handle of the connection.
    pub fn duplicate(&self) -> io::Result<LocalStream> {
        Ok(LocalStream { stream: self.stream.try_clone()? })
    }

    /// Ends the connection. Reads and writes of all handles then fail or report its end.
    pub fn shut_down(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Read for &LocalStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buffer)
    }
}

impl Write for &LocalStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&self.stream).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// The directory in `/proc/self/fd`.
    _dir: Option<OwnedFd>,
}

impl SocketFile {
    fn inside(dir: &Path) -> io::Result<SocketFile> {
        let path = std::path::absolute(dir)?.join(NAME);
        if path.as_os_str().len() <= PATH_LEN_MAX {
            return Ok(SocketFile { path, _dir: None });
        }
        if !cfg!(any(target_os = "linux", target_os = "android")) {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = retry_on_intr(|| rustix::fs::open(dir, flags, Mode::empty()))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()));
        Ok(SocketFile { path, _dir: Some(dir) })
    }

    fn fallback(dir: &Path) -> io::Result<SocketFile> {
        let found = fs::metadata(dir)?;
        let name = format!("braiddb-{}-{:x}-{:x}.socket", geteuid().as_raw(), found.dev(), found.ino());
        Ok(SocketFile { path: Path::new(FALLBACK_DIR).join(name), _dir: None })
    }
}

fn connect_to(file: &SocketFile) -> io::Result<UnixStream> {
    if fs::symlink_metadata(&file.path)?.uid() != geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the socket is another user's"));
    }
    let stream = UnixStream::from(new_socket()?);
    // A full queue of connections then fails the call instead of blocking it.
    stream.set_nonblocking(true)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(&file.path)?)?;
    stream.set_nonblocking(false)?;
    if is_same_user(&stream) {
        return Ok(stream);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the process that listens is another user's"))
}

#[cfg(not(target_vendor = "apple"))]
fn new_socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)
}

#[cfg(target_vendor = "apple")]
fn new_socket() -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_same_user(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid())
}

/// The mode of the file keeps other users out.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_same_user(_stream: &UnixStream) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(20);
    const WAIT: Duration = Duration::from_secs(10);

    fn exchange(dir: &Path) {
        let listener = LocalListener::bind(dir).unwrap();
        assert!(listener.is_reachable());
        let client = LocalStream::connect(dir, SLICE).unwrap();
        let server = listener.accept(WAIT).unwrap().unwrap();
        (&client).write_all(b"put").unwrap();
        let mut bytes = [0; 3];
        (&server).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"put");
        let nothing = (&client).read(&mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        server.shut_down();
        assert_eq!((&client).read(&mut bytes).unwrap(), 0);
    }

    #[test]
    fn socket_in_short_directory_is_a_private_file_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let listener = LocalListener::bind(dir.path()).unwrap();
        let found = fs::symlink_metadata(dir.path().join(NAME)).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        drop(listener);
        assert!(!dir.path().join(NAME).exists());
        exchange(dir.path());
    }

    /// A socket address has room for a path of about 100 bytes.
    #[test]
    fn socket_in_long_directory_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200)).join("e".repeat(200));
        fs::create_dir_all(&deep).unwrap();
        exchange(&deep);
    }

    /// The file of a killed process remains.
    #[test]
    fn bind_over_stale_file_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let stale = LocalListener::bind(dir.path()).unwrap();
        let path = stale.file.path.clone();
        fs::rename(&path, dir.path().join("kept")).unwrap();
        drop(stale);
        fs::rename(dir.path().join("kept"), &path).unwrap();
        let refused = LocalStream::connect(dir.path(), SLICE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound, "the fallback is absent");
        exchange(dir.path());
    }

    #[test]
    fn connect_to_full_queue_fails_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = LocalListener::bind(dir.path()).unwrap();
        let mut open = Vec::new();
        let refused = (0..100_000).find_map(|_| match LocalStream::connect(dir.path(), SLICE) {
            Ok(stream) => {
                open.push(stream);
                None
            }
            Err(e) => Some(e),
        });
        assert!(refused.is_some(), "{} connections were accepted by none", open.len());
    }
}
