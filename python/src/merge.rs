//! Merge functions written in Python.

use braiddb::MergeFunction;
use pyo3::{prelude::*, types::PyBytes};

/// Calls `function(key, value, operand)`, where an absent value is None.
pub struct PythonMerge {
    function: Py<PyAny>,
}

impl PythonMerge {
    pub fn new(function: Py<PyAny>) -> PythonMerge {
        PythonMerge { function }
    }
}

impl std::fmt::Debug for PythonMerge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PythonMerge").finish_non_exhaustive()
    }
}

impl MergeFunction for PythonMerge {
    fn apply(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let call = |py: Python<'_>| -> PyResult<Vec<u8>> {
            let value = value.map(|value| PyBytes::new(py, value));
            let arguments = (PyBytes::new(py, key), value, PyBytes::new(py, operand));
            Ok(crate::args::bytes(self.function.bind(py).call1(arguments)?.as_any())?.into_owned())
        };
        match Python::try_attach(|py| call(py).map_err(|error| error.to_string())) {
            Some(result) => result,
            None => Err("the Python interpreter has ended".to_owned()),
        }
    }
}
