//! Checks arguments of C calls, and turns results and panics into codes and messages.

use crate::code::{self, braid_code, braid_code::*};
use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

/// Bytes of the program or of BraidDB. A null `data` means absent where a function says so, else
/// empty.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_slice {
    pub data: *const c_void,
    /** In bytes. */
    pub len: usize,
}

impl braid_slice {
    pub(crate) const NULL: braid_slice = braid_slice { data: ptr::null(), len: 0 };

    pub(crate) fn of(bytes: &[u8]) -> braid_slice {
        braid_slice { data: bytes.as_ptr().cast(), len: bytes.len() }
    }
}

/// A failed call: its code and message.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: braid_code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure { code: BRAID_INVALID_ARGUMENT, message: message.into() }
    }

    /// Concerns the value of one row: the rows behind it can be read.
    pub(crate) fn is_of_value(&self) -> bool {
        matches!(self.code, BRAID_MERGE_FAILED | BRAID_CORRUPTION)
    }
}

impl From<braiddb::Error> for Failure {
    fn from(error: braiddb::Error) -> Failure {
        Failure { code: code::of_error(&error), message: error.to_string() }
    }
}

pub(crate) type Outcome<T = braid_code> = Result<T, Failure>;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn keep_message(message: &str) {
    let bytes: Vec<u8> = message.bytes().map(|byte| if byte == 0 { b' ' } else { byte }).collect();
    // Without a NUL this cannot fail.
    let message = CString::new(bytes).unwrap_or_default();
    // Fails only while the thread ends. Then no call can read the message.
    let _ = MESSAGE.try_with(|kept| *kept.borrow_mut() = message);
}

pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

/// Runs the body of a call. Turns failures and panics into codes, and keeps their message.
pub(crate) fn run(work: impl FnOnce() -> Outcome) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = format!("a fault in BraidDB: {}", text_of_panic(&*panic));
        Err(Failure { code: BRAID_PANIC, message })
    });
    match outcome {
        Ok(code) => code as i32,
        Err(failure) => {
            keep_message(&failure.message);
            failure.code as i32
        }
    }
}

/// Frees a handle; a null does nothing. The message of an earlier call stays.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the header's rules: `give` made it, and it was not freed.
        let owned = unsafe { Box::from_raw(handle) };
        quietly(move || drop(owned));
    }
}

/// Runs work of a call without a result. Only a panic leaves a message.
pub(crate) fn quietly(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        keep_message(&format!("a fault in BraidDB: {}", text_of_panic(&*panic)));
    }
}

pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: the header's rules.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::argument(format!("`{name}` is NULL")))
}

/// Sets an out-parameter; null means that the caller does not want it.
pub(crate) unsafe fn set<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the header's rules.
        unsafe { out.write(value) };
    }
}

/// Checks an out-parameter for a new handle, and clears it in case of a failure.
pub(crate) unsafe fn slot<T>(out: *mut *mut T, name: &str) -> Outcome<()> {
    if out.is_null() {
        return Err(Failure::argument(format!("`{name}` is NULL: it takes the new handle")));
    }
    // SAFETY: the header's rules.
    unsafe { out.write(ptr::null_mut()) };
    Ok(())
}

pub(crate) unsafe fn give<T>(out: *mut *mut T, value: T) {
    // SAFETY: `slot` has checked it.
    unsafe { out.write(Box::into_raw(Box::new(value))) };
}

pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::argument(format!("{len} bytes at NULL")));
    }
    if len > isize::MAX as usize {
        return Err(Failure::argument(format!("{len} bytes: longer than memory can be")));
    }
    // SAFETY: the header's rules.
    Ok(unsafe { slice::from_raw_parts(data.cast(), len) })
}

/// Null means absent.
pub(crate) unsafe fn maybe_bytes<'a>(of: braid_slice) -> Outcome<Option<&'a [u8]>> {
    // SAFETY: the header's rules.
    if of.data.is_null() && of.len == 0 { Ok(None) } else { unsafe { bytes(of.data, of.len) }.map(Some) }
}

pub(crate) unsafe fn array<'a, T>(data: *const T, len: usize, name: &str) -> Outcome<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("`{name}` is NULL or too long")));
    }
    // SAFETY: the header's rules.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format!("`{name}` is NULL")));
    }
    // SAFETY: the header's rules: it ends with a NUL.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::argument(format!("`{name}` is no UTF-8")))
}

/// A path: any bytes under Unix, UTF-8 elsewhere.
pub(crate) unsafe fn path(path: *const c_char, name: &str) -> Outcome<std::path::PathBuf> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        if path.is_null() {
            return Err(Failure::argument(format!("`{name}` is NULL")));
        }
        // SAFETY: the header's rules: it ends with a NUL.
        let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
        Ok(std::ffi::OsStr::from_bytes(bytes).into())
    }
    #[cfg(not(unix))]
    // SAFETY: the header's rules.
    unsafe {
        text(path, name).map(Into::into)
    }
}

/// Returns the version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn braid_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the message of this thread's last failed call: valid until its next failed call, never
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn braid_error_message() -> *const c_char {
    MESSAGE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the name of a `braid_code`, as "BRAID_CONFLICT"; "unknown" for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn braid_code_name(code: i32) -> *const c_char {
    macro_rules! names {
        ($($name:ident)*) => {
            match braid_code::ALL.into_iter().find(|known| *known as i32 == code) {
                $(Some(braid_code::$name) => concat!(stringify!($name), "\0"),)*
                None => "unknown\0",
            }
        };
    }
    let name = names!(BRAID_OK BRAID_NOT_FOUND BRAID_END BRAID_TIMEOUT BRAID_INVALID_ARGUMENT BRAID_CLOSED
        BRAID_CONFLICT BRAID_CORRUPTION BRAID_IO BRAID_DISK_FULL BRAID_LOCKED BRAID_READ_ONLY
        BRAID_OUTCOME_UNKNOWN BRAID_NO_SUCH BRAID_EXISTS BRAID_TOO_LARGE BRAID_MERGE_FAILED BRAID_EXPIRED
        BRAID_EXCLUSIVE_OPEN BRAID_WATCH_TOO_OLD BRAID_ABORTED BRAID_UNSUPPORTED BRAID_TOO_BUSY
        BRAID_BUFFER_TOO_SMALL BRAID_TRANSACTION_ENDED BRAID_PANIC BRAID_OTHER);
    name.as_ptr().cast()
}
