//! Functions without an open database: backups, restore, verification.

use crate::{args, errors::raise, options::builder, stats};
use braiddb::{
    Db,
    backup::{Backups, DirectoryTarget, RestorePoint},
};
use pyo3::{prelude::*, types::PyDict};
use std::path::PathBuf;

/// Lists the backups in a directory.
#[pyfunction]
pub fn backups(py: Python<'_>, dir: PathBuf) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let list = py.detach(|| Backups::new(&DirectoryTarget::open(dir)?).list()).map_err(raise)?;
    list.iter().map(|info| stats::backup_info(py, info)).collect()
}

/// Deletes a backup.
#[pyfunction]
pub fn delete_backup(py: Python<'_>, dir: PathBuf, id: u64) -> PyResult<()> {
    py.detach(|| Backups::new(&DirectoryTarget::open(dir)?).delete(id)).map_err(raise)
}

/// Reads backups and compares their checksums. Returns the ids of intact and of damaged ones.
#[pyfunction]
#[pyo3(signature = (dir, id=None))]
pub fn verify_backups(py: Python<'_>, dir: PathBuf, id: Option<u64>) -> PyResult<(Vec<u64>, Vec<u64>)> {
    let report = py.detach(|| Backups::new(&DirectoryTarget::open(dir)?).verify(id)).map_err(raise)?;
    Ok((report.whole, report.damaged))
}

/// Restores a backup, or a later point with a log archive. Returns the last commit.
#[pyfunction]
#[pyo3(signature = (backups, path, *, id=None, archive=None, commit=None, time=None))]
pub fn restore(
    py: Python<'_>,
    backups: PathBuf,
    path: PathBuf,
    id: Option<u64>,
    archive: Option<PathBuf>,
    commit: Option<u64>,
    time: Option<f64>,
) -> PyResult<u64> {
    let point = match (commit, time) {
        (Some(commit), _) => RestorePoint::Version(commit),
        (None, Some(time)) => RestorePoint::Time(args::time(time)?),
        (None, None) => RestorePoint::Latest,
    };
    let builder = builder(None)?;
    let restored = py.detach(|| {
        let target = DirectoryTarget::open(backups)?;
        match archive {
            Some(archive) => builder.restore_to(&target, archive, point, path),
            None => builder.restore(&target, id, path),
        }
    });
    restored.map(|restored| restored.sequence).map_err(raise)
}

/// Verifies a database that need not open.
#[pyfunction]
pub fn verify_path(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let report = py.detach(|| Db::verify_path(path)).map_err(raise)?;
    stats::verify_report(py, &report)
}
