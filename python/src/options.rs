//! Options of `braiddb.open`, by name.

use crate::{
    args::{self, duration},
    errors,
    merge::PythonMerge,
};
use braiddb::{Builder, Compression, platform::RateLimiter};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyString},
};
use std::{path::PathBuf, sync::Arc};

pub fn compression(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => Err(errors::invalid(format!("compression is \"none\", \"lz4\" or \"zstd\", not {other:?}"))),
    }
}

/// Returns a builder with these options.
pub fn builder(options: Option<&Bound<'_, PyDict>>) -> PyResult<Builder> {
    let mut builder = Builder::new();
    let Some(options) = options else { return Ok(builder) };
    for (name, value) in options {
        if !value.is_none() {
            let name = name.cast::<PyString>()?.to_string();
            builder = with_option(builder, &name, &value)?;
        }
    }
    Ok(builder)
}

fn with_option(builder: Builder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Builder> {
    Ok(match name {
        "create" => builder.create(value.extract()?),
        "create_parents" => builder.create_parents(value.extract()?),
        "read_only" => builder.read_only(value.extract()?),
        "memory" => builder.memory(value.extract()?),
        "durability" => match args::durability(Some(value.extract()?))? {
            Some(durability) => builder.durability(durability),
            None => builder,
        },
        "compression" => builder.compression(compression(value.extract()?)?),
        "blob_threshold" => builder.blob_threshold(value.extract()?),
        "background_threads" => builder.background_threads(value.extract()?),
        "reader_age_warn" => builder.reader_age_warn(duration(value)?),
        "reader_age_max" => builder.reader_age_max(duration(value)?),
        "exclusive_wait_max" => builder.exclusive_wait_max(duration(value)?),
        "slow_commit" => builder.slow_commit(duration(value)?),
        "log_retention" => builder.log_retention(value.extract()?),
        "log_retention_age" => builder.log_retention_age(duration(value)?),
        "log_archive" => builder.log_archive(value.extract::<PathBuf>()?),
        "open_files_max" => builder.open_files_max(value.extract()?),
        "disk_reserve" => builder.disk_reserve(value.extract()?),
        "garbage_percent" => builder.garbage_percent(value.extract()?),
        "read_in_place" => builder.read_in_place(value.extract()?),
        "direct_io" => builder.direct_io(value.extract()?),
        "scrub" => builder.scrub(value.extract()?),
        "rate_limit" => builder.rate_limiter(Arc::new(RateLimiter::new(value.extract()?))),
        "shared_timeout" => builder.shared_timeout(duration(value)?),
        "refresh_every" => builder.refresh_every(Some(duration(value)?)),
        "merge" => with_merge_functions(builder, value.cast::<PyDict>()?)?,
        other => return Err(PyTypeError::new_err(format!("there is no option {other:?}"))),
    })
}

fn with_merge_functions(mut builder: Builder, functions: &Bound<'_, PyDict>) -> PyResult<Builder> {
    for (name, function) in functions {
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!("the merge function {name} cannot be called")));
        }
        builder = builder.merge_function(name.extract::<String>()?, Arc::new(PythonMerge::new(function.unbind())));
    }
    Ok(builder)
}
