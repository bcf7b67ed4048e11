//! A runtime for tests that records started threads and can hold them back.

use crate::platform::{os::system_runtime::SystemRuntime, runtime::Runtime};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Barrier},
    thread::JoinHandle,
};

/// The runtime. Shared by all threads.
#[derive(Debug)]
pub struct GatedRuntime {
    /// Handles everything but starting threads.
    pub system: SystemRuntime,
    names: Mutex<Vec<String>>,
    gates: Mutex<VecDeque<Arc<Barrier>>>,
}

impl GatedRuntime {
    /// Creates a runtime without gates.
    pub fn new() -> Arc<GatedRuntime> {
        Arc::new(GatedRuntime { system: SystemRuntime::new(), names: Mutex::default(), gates: Mutex::default() })
    }

    /// Blocks the next started thread without a gate until another thread waits at the barrier.
    pub fn hold_back(&self) -> Arc<Barrier> {
        let gate = Arc::new(Barrier::new(2));
        self.gates.lock().push_back(Arc::clone(&gate));
        gate
    }

    /// Returns true if a thread of this name was started.
    pub fn has_started(&self, name: &str) -> bool {
        self.names.lock().iter().any(|other| other == name)
    }
}

impl Runtime for GatedRuntime {
    fn unix_time_us(&self) -> u64 {
        self.system.unix_time_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.system.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        self.names.lock().push(name.to_owned());
        let gate = self.gates.lock().pop_front();
        let body = move || {
            if let Some(gate) = gate {
                gate.wait();
            }
            body();
        };
        self.system.spawn(name, Box::new(body))
    }
    fn sleep_us(&self, micros: u64) {
        self.system.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}
