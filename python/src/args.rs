//! Conversions of arguments.

use crate::errors;
use braiddb::{Durability, Key, Value};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyByteArray, PyBytes, PyMemoryView, PySlice, PyString},
};
use std::{
    borrow::Cow,
    ops::Bound as Limit,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A range of keys: inclusive start, exclusive end.
pub type Range = (Limit<Vec<u8>>, Limit<Vec<u8>>);

/// A key and a value.
pub type Row<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Returns the bytes of a key or a value. `bytes` is not copied.
pub fn bytes<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Cow::Owned(bytes.to_vec()));
    }
    if object.is_instance_of::<PyMemoryView>() {
        let copy = object.call_method0("tobytes")?;
        return Ok(Cow::Owned(copy.cast::<PyBytes>()?.as_bytes().to_vec()));
    }
    let class = object.get_type().name()?;
    let advice = if object.is_instance_of::<PyString>() {
        "; for text, open the tree with db.tree(name, key=str, value=str)"
    } else {
        ""
    };
    Err(PyTypeError::new_err(format!("keys and values are bytes, not {class}{advice}")))
}

pub fn optional_bytes(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u8>>> {
    object.map(|object| Ok(bytes(object)?.into_owned())).transpose()
}

/// Returns the smallest key after all keys with this prefix.
fn prefix_end(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// Returns the keys that have the prefix and are within `start..stop`.
pub fn range(
    prefix: Option<&Bound<'_, PyAny>>,
    start: Option<&Bound<'_, PyAny>>,
    stop: Option<&Bound<'_, PyAny>>,
) -> PyResult<Range> {
    let (prefix, start, stop) = (optional_bytes(prefix)?, optional_bytes(start)?, optional_bytes(stop)?);
    let end = prefix.clone().and_then(prefix_end);
    let first = prefix.into_iter().chain(start).max();
    let last = end.into_iter().chain(stop).min();
    Ok((first.map_or(Limit::Unbounded, Limit::Included), last.map_or(Limit::Unbounded, Limit::Excluded)))
}

/// Returns the keys of a slice.
pub fn range_of(slice: &Bound<'_, PySlice>) -> PyResult<Range> {
    let part = |name| -> PyResult<Option<Bound<'_, PyAny>>> {
        let value = slice.getattr(name)?;
        Ok((!value.is_none()).then_some(value))
    };
    if part("step")?.is_some() {
        return Err(PyValueError::new_err("a slice of keys has no step: use items(start=, stop=, reverse=True)"));
    }
    range(None, part("start")?.as_ref(), part("stop")?.as_ref())
}

pub fn durability(name: Option<&str>) -> PyResult<Option<Durability>> {
    Ok(Some(match name {
        None => return Ok(None),
        Some("sync") => Durability::Sync,
        Some("buffered") => Durability::Buffered,
        Some("none") => Durability::None,
        Some(other) => {
            return Err(errors::invalid(format!("durability is \"sync\", \"buffered\" or \"none\", not {other:?}")));
        }
    }))
}

/// Returns a duration from seconds or a `timedelta`.
pub fn duration(object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(seconds) = object.extract::<f64>() {
        let seconds = Duration::try_from_secs_f64(seconds);
        return seconds.map_err(|e| PyValueError::new_err(format!("not a number of seconds: {e}")));
    }
    object.extract().map_err(|_| PyTypeError::new_err("a duration is a number of seconds or a timedelta, not negative"))
}

pub fn optional_duration(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    object.map(duration).transpose()
}

/// Returns a time from seconds since 1970.
pub fn time(seconds: f64) -> PyResult<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok();
    since.and_then(|since| UNIX_EPOCH.checked_add(since)).ok_or_else(|| PyValueError::new_err("not a time since 1970"))
}

/// Returns seconds since 1970.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

pub fn py_bytes<'py>(py: Python<'py>, bytes: Option<impl AsRef<[u8]>>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes.as_ref()))
}

pub fn py_row<'py>(py: Python<'py>, row: Option<(Key, Value)>) -> Option<Row<'py>> {
    row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value)))
}
