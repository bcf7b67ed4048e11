//! Loads the records of a tree in several threads.
//!
//! A **lane** is a thread with a loader. Frames go to the lanes in turn, in **stripes** of
//! consecutive keys, each of which becomes a run. A queue of one stripe per lane bounds memory. At
//! the end all runs become one load.

use super::{
    format::{Frame, FrameKind, damaged},
    records::{Amount, begins_beneath, read_records},
};
use crate::{
    base::{Error, FileId, Result, SequenceNumber},
    db::{Db, EntryLoader, EntrySink, Loaded},
};
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

/// Passes the contents of a frame to the sink. An invalid record is reported as damage.
pub fn show(frame: Frame, id: FileId, sink: &mut dyn EntrySink) -> Result<Amount> {
    let (kind, offset) = (frame.kind, frame.offset);
    let payload = frame.unpack(id)?;
    let shown = match kind {
        FrameKind::Piece => sink.piece(&payload).map(|()| Amount::default()),
        _ => {
            let shown = read_records(&payload, sink);
            shown.unwrap_or_else(|| Err(damaged(offset, "records that cannot be understood")))
        }
    };
    shown.map_err(|e| match e {
        Error::InvalidArgument(detail) => damaged(offset, detail),
        e => e,
    })
}

enum Order {
    Frame(Frame),
    EndStripe,
}

struct Work {
    loader: EntryLoader,
    id: FileId,
    amount: Amount,
}

impl Work {
    fn follow(&mut self, order: Order) -> Result<()> {
        match order {
            Order::EndStripe => self.loader.end_run(),
            Order::Frame(frame) => {
                self.amount.add(show(frame, self.id, &mut self.loader)?);
                Ok(())
            }
        }
    }
}

enum Lane {
    Here(Box<Work>),
    There { orders_to: SyncSender<Order>, done_from: Receiver<Result<Box<Work>>>, handle: JoinHandle<()> },
}

impl Lane {
    /// `frames_waiting` 0: the caller does the work.
    fn start(db: &Db, mut work: Box<Work>, frames_waiting: usize) -> Result<Lane> {
        if frames_waiting == 0 {
            return Ok(Lane::Here(work));
        }
        let (orders_to, orders_from) = sync_channel::<Order>(frames_waiting);
        let (done_to, done_from) = sync_channel(1);
        let body = Box::new(move || {
            let done = orders_from.iter().try_for_each(|order| work.follow(order));
            let done = done.and_then(|()| work.loader.end_run());
            let done = match done {
                Ok(()) => Ok(work),
                Err(e) => {
                    // A failed load is removed before the failure is reported.
                    drop(work);
                    Err(e)
                }
            };
            let _ = done_to.send(done);
        });
        let handle = db.spawn("braiddb-load", body)?;
        Ok(Lane::There { orders_to, done_from, handle })
    }

    /// After false, [`Lane::finish`] returns the lane's error.
    fn order(&mut self, order: Order) -> Result<bool> {
        match self {
            Lane::Here(work) => work.follow(order).map(|()| true),
            Lane::There { orders_to, .. } => Ok(orders_to.send(order).is_ok()),
        }
    }

    fn finish(self) -> Result<Box<Work>> {
        let panicked = || Error::ReadOnly { reason: "a thread that loaded a dump panicked".to_owned() };
        match self {
            Lane::Here(mut work) => work.loader.end_run().map(|()| work),
            Lane::There { orders_to, done_from, handle } => {
                drop(orders_to);
                let done = done_from.recv();
                if handle.join().is_err() {
                    return Err(panicked());
                }
                done.map_err(|_| panicked())?
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Dealing {
    /// 0: the caller does the work.
    pub lanes: usize,
    pub stripe_bytes: u64,
    pub frames_waiting: usize,
    /// Accepts operands that a merge function rejects for every value.
    pub bad_operands: bool,
}

pub struct TreeLoad {
    db: Db,
    tree: u32,
    id: FileId,
    sequence_max: SequenceNumber,
    dealing: Dealing,
    lanes: Vec<Lane>,
    present: usize,
    bytes: u64,
}

impl TreeLoad {
    pub fn new(db: &Db, tree: u32, id: FileId, sequence_max: SequenceNumber, dealing: Dealing) -> TreeLoad {
        TreeLoad { db: db.clone(), tree, id, sequence_max, dealing, lanes: Vec::new(), present: 0, bytes: 0 }
    }

    pub fn is_of(&self, tree: u32) -> bool {
        self.tree == tree
    }

    pub fn take(&mut self, frame: Frame) -> Result<()> {
        // Pieces stay in the lane of their value, and a base in that of its operands.
        let is_due = self.bytes >= self.dealing.stripe_bytes && self.dealing.lanes > 1;
        if is_due && frame.kind == FrameKind::Records && !self.begins_beneath(&frame) {
            self.order(Order::EndStripe)?;
            (self.present, self.bytes) = ((self.present + 1) % self.dealing.lanes, 0);
        }
        if self.present == self.lanes.len() {
            let mut loader = self.db.entry_loader(self.tree, self.sequence_max)?;
            loader.take_bad_operands(self.dealing.bad_operands);
            let work = Box::new(Work { loader, id: self.id, amount: Amount::default() });
            let waiting = if self.dealing.lanes == 0 { 0 } else { self.dealing.frames_waiting };
            self.lanes.push(Lane::start(&self.db, work, waiting)?);
        }
        self.bytes += u64::from(frame.len);
        self.order(Order::Frame(frame))
    }

    fn begins_beneath(&self, frame: &Frame) -> bool {
        frame.clone().unpack(self.id).is_ok_and(|payload| begins_beneath(&payload))
    }

    fn order(&mut self, order: Order) -> Result<()> {
        let taken = self.lanes.get_mut(self.present).map_or(Ok(false), |lane| lane.order(order))?;
        if taken {
            return Ok(());
        }
        let failed = self.lanes.swap_remove(self.present).finish().err();
        Err(failed.unwrap_or_else(|| Error::abort("a thread that loaded a dump ended too soon")))
    }

    pub fn finish(mut self) -> Result<(Loaded, Amount)> {
        let (mut all, mut amount, mut failed): (Option<EntryLoader>, _, _) = (None, Amount::default(), None);
        // Even after a failure: no thread may use the directory later.
        for lane in self.lanes.drain(..) {
            match lane.finish() {
                Err(e) => failed = failed.or(Some(e)),
                Ok(work) => {
                    amount.add(work.amount);
                    match &mut all {
                        None => all = Some(work.loader),
                        Some(all) => all.absorb(work.loader)?,
                    }
                }
            }
        }
        if let Some(e) = failed {
            return Err(e);
        }
        let loaded = all.map_or(Ok(Loaded::default()), EntryLoader::install)?;
        Ok((loaded, amount))
    }
}

impl Drop for TreeLoad {
    fn drop(&mut self) {
        for lane in self.lanes.drain(..) {
            drop(lane.finish());
        }
    }
}
