//! Merge functions of the program.

use crate::{
    boundary::braid_slice,
    code::braid_code::{self, *},
};
use braiddb::MergeFunction;
use std::{ffi::c_void, fmt};

/// Takes the result of a merge function.
pub struct braid_merge_result {
    value: Option<Vec<u8>>,
}

/// Applies one operand to a key's value (`data` NULL: absent), and passes the new value to
/// `braid_merge_set`. Returns 0, or another number to fail: then reads of the key fail with
/// `BRAID_MERGE_FAILED`. It must give the same result each time. Any thread calls it, also those of
/// the database, and several at once. It must call nothing of this header but `braid_merge_set`.
pub type braid_merge_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: braid_slice,
        value: braid_slice,
        operand: braid_slice,
        result: *mut braid_merge_result,
    ) -> i32,
>;

/// Frees the context of a callback. The thread calls it that frees the last user of the context:
/// one of the program or of the database. It must call nothing of this header.
pub type braid_free_fn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// A context of the program. The header requires callbacks that any thread may call.
pub(crate) struct Context {
    pub(crate) pointer: *mut c_void,
    free: braid_free_fn,
}

// SAFETY: the header's rules: callbacks and their contexts are used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above, by several at once.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(pointer: *mut c_void, free: braid_free_fn) -> Context {
        Context { pointer, free }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the header's rules: the function takes this context, once.
            unsafe { free(self.pointer) };
        }
    }
}

pub(crate) struct CallbackFunction {
    apply: Apply,
    context: Context,
}

type Apply = unsafe extern "C" fn(*mut c_void, braid_slice, braid_slice, braid_slice, *mut braid_merge_result) -> i32;

impl CallbackFunction {
    pub(crate) fn new(apply: Apply, context: *mut c_void, free: braid_free_fn) -> CallbackFunction {
        CallbackFunction { apply, context: Context::new(context, free) }
    }
}

impl fmt::Debug for CallbackFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackFunction").finish_non_exhaustive()
    }
}

impl MergeFunction for CallbackFunction {
    fn apply(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let mut result = braid_merge_result { value: None };
        let value = value.map_or(braid_slice::NULL, braid_slice::of);
        // SAFETY: the header's rules for merge functions; the slices and `result` outlive the call.
        let code = unsafe {
            (self.apply)(self.context.pointer, braid_slice::of(key), value, braid_slice::of(operand), &mut result)
        };
        match result.value {
            _ if code != 0 => Err(format!("the program's merge function returned {code}")),
            Some(value) => Ok(value),
            None => Err("the program's merge function did not call `braid_merge_set`".to_owned()),
        }
    }
}

/// Sets the new value, in a merge function and its thread. It copies the bytes; the last call
/// counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_merge_set(result: *mut braid_merge_result, value: *const c_void, len: usize) -> i32 {
    // SAFETY: the header's rules.
    crate::boundary::run(|| unsafe {
        let value = crate::boundary::bytes(value, len)?.to_vec();
        let result = result.as_mut().ok_or_else(|| crate::boundary::Failure::argument("`result` is NULL"))?;
        result.value = Some(value);
        Ok::<braid_code, _>(BRAID_OK)
    })
}
