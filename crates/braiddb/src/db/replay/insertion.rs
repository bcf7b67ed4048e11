//! What is replayed goes into memtables: here, or in a thread beside the one that reads and checks the log. To insert takes as long as all else.

use super::super::{core::Core, merging::insert_operands, settings::Settings};
use crate::{
    base::{EntryKind, SequenceNumber},
    codec::MergeFunctions,
    commit::decode_group,
    memtable::Memtable,
};
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
};

/// Records are handed over when there are so many bytes of them. A log with less needs no thread.
const LOAD_BYTES: usize = 256 << 10;

/// So many loads may wait for the other thread.
const LOADS_WAITING: usize = 4;

/// Memtables that are filled one after the other.
pub struct Memtables {
    settings: Settings,
    functions: Arc<MergeFunctions>,
    /// What is in runs already.
    flushed: SequenceNumber,
    /// Those that are full, oldest first.
    pub full: Vec<Arc<Memtable>>,
    /// The one that takes what comes.
    pub last: Arc<Memtable>,
}

impl Memtables {
    /// None but an empty one.
    pub fn new(settings: &Settings, functions: &Arc<MergeFunctions>, flushed: SequenceNumber) -> Memtables {
        let (settings, functions) = (settings.clone(), Arc::clone(functions));
        let last = Core::new_memtable(&settings, 0);
        Memtables { settings, functions, flushed, full: Vec::new(), last }
    }

    /// Inserts a group whose first batch has this sequence number; it was found to be whole before.
    fn insert(&mut self, group: &[u8], first_sequence: SequenceNumber) {
        if self.last.bytes_used() >= self.settings.memtable_bytes() {
            let next = Core::new_memtable(&self.settings, self.last.bytes_used());
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        let mut writer = self.last.writer();
        decode_group(group, |batch, op| {
            let sequence = first_sequence + batch;
            match op.kind {
                _ if sequence <= self.flushed => {}
                EntryKind::RangeDelete => writer.insert_range_tombstone(op.range_tombstone(sequence)),
                EntryKind::Merge => insert_operands(&self.last, &mut writer, &self.functions, &op, sequence),
                _ => writer.insert(op.key, sequence, op.kind, op.value),
            }
        });
    }

    fn insert_load(&mut self, load: &Load) {
        let mut begin = 0;
        for &(first_sequence, end) in &load.groups {
            self.insert(&load.bytes[begin..end], first_sequence);
            begin = end;
        }
    }
}

/// Groups on their way.
#[derive(Default)]
struct Load {
    bytes: Vec<u8>,
    /// The first sequence number of each, and where its bytes end.
    groups: Vec<(SequenceNumber, usize)>,
}

/// The thread beside.
struct Beside {
    loads: SyncSender<Load>,
    filled: Receiver<Memtables>,
    thread: JoinHandle<()>,
}

impl Beside {
    fn start(memtables: Memtables) -> Result<Beside, Memtables> {
        let (loads, waiting) = sync_channel::<Load>(LOADS_WAITING);
        let (tell, filled) = channel();
        // Handed over as the first thing, so that they come back if there is no thread.
        let (give, given) = channel::<Memtables>();
        let runtime = Arc::clone(&memtables.settings.runtime);
        let body = move || {
            let Ok(mut memtables) = given.recv() else { return };
            waiting.iter().for_each(|load| memtables.insert_load(&load));
            let _ = tell.send(memtables);
        };
        match runtime.spawn("braiddb-replay", Box::new(body)) {
            Ok(thread) => {
                let _ = give.send(memtables);
                Ok(Beside { loads, filled, thread })
            }
            Err(error) => {
                tracing::debug!(%error, "there is no thread to replay beside");
                Err(memtables)
            }
        }
    }

    /// Waits until all is inserted. A panic there is one here.
    fn finish(self) -> Memtables {
        let Beside { loads, filled, thread } = self;
        drop(loads);
        let memtables = filled.recv();
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
        memtables.expect("told by a thread that did not panic")
    }
}

/// Inserts groups in the order in which they are given.
pub struct Insertion {
    /// Where no thread has them.
    here: Option<Memtables>,
    beside: Option<Beside>,
    load: Load,
    may_be_beside: bool,
}

impl Insertion {
    /// Into these memtables. `may_be_beside` if a thread may do it, once there is enough for that.
    pub fn new(memtables: Memtables, may_be_beside: bool) -> Insertion {
        Insertion { here: Some(memtables), beside: None, load: Load::default(), may_be_beside }
    }

    /// Inserts a group whose first batch has this sequence number, at once or later.
    pub fn insert(&mut self, group: &[u8], first_sequence: SequenceNumber) {
        if let Some(memtables) = self.here.as_mut().filter(|_| !self.may_be_beside) {
            return memtables.insert(group, first_sequence);
        }
        self.load.bytes.extend_from_slice(group);
        self.load.groups.push((first_sequence, self.load.bytes.len()));
        if self.load.bytes.len() >= LOAD_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let room = Vec::with_capacity(LOAD_BYTES + LOAD_BYTES / 8);
        let load = std::mem::replace(&mut self.load, Load { bytes: room, groups: Vec::new() });
        if let Some(memtables) = self.here.take() {
            match Beside::start(memtables) {
                Ok(beside) => self.beside = Some(beside),
                Err(mut memtables) => {
                    memtables.insert_load(&load);
                    (self.here, self.may_be_beside, self.load) = (Some(memtables), false, Load::default());
                    return;
                }
            }
        }
        if let Some(beside) = self.beside.take() {
            if beside.loads.send(load).is_err() {
                // It has panicked.
                beside.finish();
                return;
            }
            self.beside = Some(beside);
        }
    }

    /// Waits until all is inserted.
    pub fn finish(mut self) -> Memtables {
        let load = std::mem::take(&mut self.load);
        if let Some(beside) = self.beside.take() {
            // Should that fail, it has panicked, and so will this.
            let _ = beside.loads.send(load);
            return beside.finish();
        }
        let mut memtables = self.here.take().expect("here unless beside");
        memtables.insert_load(&load);
        memtables
    }
}

impl Drop for Insertion {
    /// No thread is left behind by a replay that failed.
    fn drop(&mut self) {
        if let Some(Beside { loads, thread, .. }) = self.beside.take() {
            drop(loads);
            let _ = thread.join();
        }
    }
}
