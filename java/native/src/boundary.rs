//! The boundary to Java: buffers, handles, results and panics.

use crate::{
    codec::Writer,
    errors::{self, Failure},
};
use braiddb::bulk::UnsortedLoader;
use jni::{
    EnvUnowned,
    objects::{JByteBuffer, JClass},
    sys::{jint, jlong},
};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

/// The key is absent.
pub const ABSENT: jlong = -1;

/// The result does not fit. The buffer begins with the address of its box and its length: see
/// [`take_result`].
const OVERFLOW: jlong = -2;

/// The next row does not fit. The buffer begins with the bytes that it needs.
pub const TOO_SMALL: jlong = -3;

/// Bytes of the buffer that every call leaves for a handle, a code's details, or a short message.
const DETAILS_MIN: usize = 64;

pub type Outcome<T = jlong> = Result<T, Failure>;

/// Declares a native method. The buffer is `$buffer` in its body.
macro_rules! native {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$buffer:ident| $body:expr) => {
        $(#[$doc])*
        #[jni::jni_mangle("io.github.braiddb.Native")]
        pub fn $name<'local>(
            _env: jni::EnvUnowned<'local>,
            _class: jni::objects::JClass<'local>,
            $($argument: $type,)*
            address: jni::sys::jlong,
            capacity: jni::sys::jint,
        ) -> jni::sys::jlong {
            $crate::boundary::run(address, capacity, |$buffer: &mut [u8]| $body)
        }
    };
}
pub(crate) use native;

/// Runs the body of a native method. Turns failures and panics into codes and details.
pub fn run(address: jlong, capacity: jint, work: impl FnOnce(&mut [u8]) -> Outcome) -> jlong {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    if address == 0 || capacity < DETAILS_MIN {
        return errors::INTERNAL;
    }
    // SAFETY: Java passes the address of a direct buffer that it keeps until the call returns. No
    // other call uses it meanwhile: Java takes the buffer out of a pool.
    let buffer = unsafe { slice::from_raw_parts_mut(address as *mut u8, capacity) };
    let outcome = catch_unwind(AssertUnwindSafe(|| work(buffer)));
    let failure = match outcome {
        Ok(Ok(result)) => return result,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::internal(format!("a fault in BraidDB: {}", text_of_panic(&*panic))),
    };
    failure.write(buffer);
    failure.code
}

fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

/// Returns the address of a direct buffer, or 0.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn address<'local>(mut env: EnvUnowned<'local>, _class: JClass<'local>, buffer: JByteBuffer<'local>) -> jlong {
    let found = env.with_env(|env| env.get_direct_buffer_address(&buffer));
    match found.into_outcome() {
        jni::Outcome::Ok(address) => address as jlong,
        _ => 0,
    }
}

/// Writes the handle of a new box to the start of the buffer.
pub fn give_handle<T: Send + Sync>(buffer: &mut [u8], value: T) -> Outcome {
    let place = buffer.first_chunk_mut().ok_or_else(too_short)?;
    *place = (Box::into_raw(Box::new(value)) as u64).to_le_bytes();
    Ok(0)
}

/// Returns the contents of a handle.
pub fn handle<'a, T: Send + Sync>(handle: jlong) -> Outcome<&'a T> {
    // SAFETY: J1: the box was made by `give_handle` with this type, and Java keeps it during the
    // call that `'a` does not outlive: no body returns or stores the reference.
    unsafe { (handle as *const T).as_ref() }.ok_or_else(Failure::closed)
}

/// Frees a box.
pub fn free<T: Send + Sync>(handle: jlong) {
    if handle != 0 {
        // SAFETY: J1: the box was made by `give_handle` with this type, and no call uses it now.
        let owned = unsafe { Box::from_raw(handle as *mut T) };
        // A panic while it is dropped has no one to be reported to.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(owned)));
    }
}

/// Splits arguments off the start of a buffer.
pub fn split(buffer: &mut [u8], len: jint) -> Outcome<(&mut [u8], &mut [u8])> {
    usize::try_from(len).ok().and_then(|len| buffer.split_at_mut_checked(len)).ok_or_else(too_short)
}

/// Returns the first two arguments in a buffer.
pub fn two(buffer: &[u8], first: jint, second: jint) -> Outcome<(&[u8], &[u8])> {
    let (first, second) = (usize::try_from(first), usize::try_from(second));
    let parts = first.ok().and_then(|len| buffer.split_at_checked(len));
    let parts = parts.and_then(|(one, rest)| Some((one, rest.get(..second.ok()?)?)));
    parts.ok_or_else(too_short)
}

/// Returns a text argument at the start of a buffer.
pub fn text(buffer: &[u8], len: jint) -> Outcome<&str> {
    let bytes = usize::try_from(len).ok().and_then(|len| buffer.get(..len)).ok_or_else(too_short)?;
    std::str::from_utf8(bytes).map_err(|_| Failure::argument("a text is not UTF-8"))
}

/// Returns the contents of a direct buffer besides that of [`run`].
pub fn second_buffer<'a>(address: jlong, len: jint) -> Outcome<&'a [u8]> {
    let len = usize::try_from(len).map_err(|_| too_short())?;
    if address == 0 {
        return Err(too_short());
    }
    // SAFETY: as in `run`. Java holds the lock under which it writes to the buffer.
    Ok(unsafe { slice::from_raw_parts(address as *const u8, len) })
}

pub fn too_short() -> Failure {
    Failure::internal("the buffer is shorter than its contents".to_owned())
}

/// Copies a result to the buffer. One that does not fit is boxed until [`take_result`].
pub fn give(out: &mut [u8], result: &[u8]) -> Outcome {
    match out.get_mut(..result.len()) {
        Some(place) => {
            place.copy_from_slice(result);
            Ok(result.len() as jlong)
        }
        None => give_boxed(out, result.to_vec()),
    }
}

/// As [`give`], of a result that need not be copied twice.
pub fn give_writer(out: &mut [u8], result: Writer) -> Outcome {
    let result = result.into_bytes();
    if result.len() <= out.len() { give(out, &result) } else { give_boxed(out, result) }
}

fn give_boxed(out: &mut [u8], result: Vec<u8>) -> Outcome {
    if result.len() > i32::MAX as usize {
        return Err(Failure::argument(format!(
            "the result has {} bytes, and a Java array holds 2,147,483,647: read it in parts",
            result.len()
        )));
    }
    let (place, rest) = out.split_first_chunk_mut().ok_or_else(too_short)?;
    let len = rest.first_chunk_mut().ok_or_else(too_short)?;
    *len = (result.len() as u64).to_le_bytes();
    *place = (Box::into_raw(Box::new(result)) as u64).to_le_bytes();
    Ok(OVERFLOW)
}

native! {
    /// Copies a boxed result to the buffer, and frees it.
    fn take_result(result: jlong) |buffer| {
        let copied = give(buffer, handle::<Vec<u8>>(result)?);
        free::<Vec<u8>>(result);
        copied
    }
}

/// A loader that has no function to report progress to.
pub struct Silent(pub UnsortedLoader<'static>);

// SAFETY: the only field of a loader that is bound to a thread is the function that reports its
// progress, and `loader_open` sets none.
unsafe impl Send for Silent {}
