//! Connections between processes of one user on one machine: Unix domain sockets.
//!
//! The address is a directory, not a path. The socket file is `.socket` in the directory. A path
//! above [`PATH_LEN_MAX`] does not fit a socket address: Linux then reaches the file through
//! `/proc/self/fd`. Where neither works (other systems, file systems without sockets), the file is
//! in `/tmp`, and its name has the directory's device and inode number.
//!
//! Both ends accept only a peer of the same effective user: the file has mode 0600, a client checks
//! its owner, and Linux reports the peer's user. The socket is bound in a directory with mode 0700
//! and then moved, so no other user reaches it before it has its mode.

#![expect(clippy::disallowed_methods, reason = "socket files, which no Vfs has")]

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    io::retry_on_intr,
    net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType},
    process::geteuid,
    time::Timespec,
};
use std::{
    fs,
    io::{self, Write},
    net::Shutdown,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
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

/// The private directory in which the socket is bound, beside its file, and its name there.
const PRIVATE_DIR: &str = ".socket.new";
const PRIVATE_NAME: &str = "s";

/// Maximum bytes of a path in a socket address; 103 on Apple systems.
const PATH_LEN_MAX: usize = 100;

const FALLBACK_DIR: &str = "/tmp";

/// Accepts connections for the database in a directory.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    file: SocketFile,
    /// Device and inode number of its file.
    identity: (u64, u64),
}

impl LocalListener {
    /// Listens, and replaces the socket file of an earlier process. Only the owner of the
    /// directory's lock may call this.
    pub fn bind(dir: &Path) -> io::Result<LocalListener> {
        let inside = SocketFile::inside(dir).and_then(LocalListener::bind_to);
        inside.or_else(|_| LocalListener::bind_to(SocketFile::fallback(dir)?))
    }

    fn bind_to(file: SocketFile) -> io::Result<LocalListener> {
        make_private_dir(&file.private_dir)?;
        let bound = file.private_dir.join(PRIVATE_NAME);
        let made = LocalListener::bind_at(&bound).and_then(|(listener, identity)| {
            fs::rename(&bound, &file.path)?;
            Ok((listener, identity))
        });
        let _ = fs::remove_file(&bound);
        let _ = fs::remove_dir(&file.private_dir);
        let (listener, identity) = made?;
        Ok(LocalListener { listener, file, identity })
    }

    fn bind_at(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let found = fs::symlink_metadata(path)?;
        Ok((listener, (found.dev(), found.ino())))
    }

    /// Returns the next connection, or `None` after `wait`. Ignores peers of other users. A write to
    /// the connection returns `WouldBlock` after `slice`.
    pub fn accept(&self, wait: Duration, slice: Duration) -> io::Result<Option<LocalStream>> {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let wait = Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?;
        if poll(&mut fds, Some(&wait)).or_else(|e| if e == rustix::io::Errno::INTR { Ok(0) } else { Err(e) })? == 0 {
            return Ok(None);
        }
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(slice))?;
                Ok(is_same_user(&stream).then_some(LocalStream { stream }))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns whether clients can find the socket: another program may remove or replace the file.
    pub fn is_reachable(&self) -> bool {
        fs::symlink_metadata(&self.file.path)
            .is_ok_and(|found| found.file_type().is_socket() && (found.dev(), found.ino()) == self.identity)
    }

    /// Makes the socket file again.
    pub fn renew(&mut self, dir: &Path) -> io::Result<()> {
        *self = LocalListener::bind(dir)?;
        Ok(())
    }
}

impl Drop for LocalListener {
    /// Leaves the file of a later listener. Its inode number is another: this socket is still open.
    fn drop(&mut self) {
        if self.is_reachable() {
            let _ = fs::remove_file(&self.file.path);
        }
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Left behind by a killed process.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            let is_private = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
            if is_private { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        }
        done => done,
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
    /// A write returns `WouldBlock` after `slice`, so that the caller can check the time.
    pub fn connect(dir: &Path, slice: Duration) -> io::Result<LocalStream> {
        let inside = SocketFile::inside(dir).and_then(|file| connect_to(&file));
        let stream = inside.or_else(|_| connect_to(&SocketFile::fallback(dir)?))?;
        stream.set_write_timeout(Some(slice))?;
        Ok(LocalStream { stream })
    }

    /// Reads the bytes that have arrived, or returns `WouldBlock`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (len, _) = rustix::net::recv(&self.stream, buffer, RecvFlags::DONTWAIT)?;
        Ok(len)
    }

    /// Waits until a read does not block, at most for `wait`. Returns false after it.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        let wait = Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut fds, Some(&wait)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends the connection. Reads and writes of all handles then fail or report its end.
    pub fn shut_down(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Gives up a write that has failed, and the connection. Returns false if the bytes are sent; here
    /// a write that fails has sent none.
    pub fn withdraw(&self) -> bool {
        self.shut_down();
        true
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
    private_dir: PathBuf,
    /// The directory in `/proc/self/fd`.
    _dir: Option<OwnedFd>,
}

impl SocketFile {
    fn inside(dir: &Path) -> io::Result<SocketFile> {
        let dir = std::path::absolute(dir)?;
        let (path, private_dir) = (dir.join(NAME), dir.join(PRIVATE_DIR));
        if private_dir.join(PRIVATE_NAME).as_os_str().len() <= PATH_LEN_MAX {
            return Ok(SocketFile { path, private_dir, _dir: None });
        }
        if !cfg!(any(target_os = "linux", target_os = "android")) {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = retry_on_intr(|| rustix::fs::open(&dir, flags, Mode::empty()))?;
        let reached = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        Ok(SocketFile { path: reached.join(NAME), private_dir: reached.join(PRIVATE_DIR), _dir: Some(dir) })
    }

    fn fallback(dir: &Path) -> io::Result<SocketFile> {
        let found = fs::metadata(dir)?;
        let name = format!("braiddb-{}-{:x}-{:x}", geteuid().as_raw(), found.dev(), found.ino());
        let path = |end: &str| Path::new(FALLBACK_DIR).join(format!("{name}{end}"));
        Ok(SocketFile { path: path(".socket"), private_dir: path(PRIVATE_DIR), _dir: None })
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
        let server = listener.accept(WAIT, SLICE).unwrap().unwrap();
        (&client).write_all(b"put").unwrap();
        let mut bytes = [0; 3];
        assert!(server.wait_readable(WAIT).unwrap());
        assert_eq!(server.try_read(&mut bytes).unwrap(), 3);
        assert_eq!(&bytes, b"put");
        assert!(!client.wait_readable(SLICE).unwrap());
        assert_eq!(client.try_read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.shut_down();
        assert!(client.wait_readable(WAIT).unwrap());
        assert_eq!(client.try_read(&mut bytes).unwrap(), 0);
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

    /// A listener that another process has replaced.
    #[test]
    fn drop_of_listener_leaves_file_of_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let old = LocalListener::bind(dir.path()).unwrap();
        let later = LocalListener::bind(dir.path()).unwrap();
        assert!(!old.is_reachable() && later.is_reachable());
        drop(old);
        assert!(later.is_reachable());
        LocalStream::connect(dir.path(), SLICE).unwrap();
    }

    /// On some systems the mode of the file alone keeps other users out, so it must be private from
    /// the first moment on.
    #[test]
    fn socket_is_bound_in_private_directory() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join(PRIVATE_DIR);
        make_private_dir(&private).unwrap();
        assert_eq!(fs::symlink_metadata(&private).unwrap().mode() & 0o777, 0o700);
        fs::write(private.join(PRIVATE_NAME), "of a killed process").unwrap();
        exchange(dir.path());
        assert!(!private.exists());
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
        let open = LocalListener::bind_to(SocketFile::inside(dir.path()).unwrap()).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::PermissionDenied);
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
