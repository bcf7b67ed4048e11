//! Loads the records of one tree, in several threads.
//!
//! Frames come in key order. They are dealt out in **stripes** of some mebibytes, one lane after the other, each with a thread and a loader of its
//! own; a lane's run ends where its stripe does. A lane has room for a stripe that it has not come to yet, so all lanes work while
//! the dump is read, and memory is bounded. In the end the runs of all lanes are one load.

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

/// Shows what a frame of records or a piece holds. What the sink finds wrong with it is damage.
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

/// What a lane is told.
enum Order {
    Frame(Frame),
    EndStripe,
}

/// A loader, and what it has loaded.
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

/// Who does the work of a lane.
enum Lane {
    /// The caller.
    Here(Box<Work>),
    There {
        orders_to: SyncSender<Order>,
        done_from: Receiver<Result<Box<Work>>>,
        handle: JoinHandle<()>,
    },
}

impl Lane {
    /// A lane in which so many frames may wait; 0: the caller does the work.
    fn start(db: &Db, mut work: Box<Work>, frames_waiting: usize) -> Result<Lane> {
        if frames_waiting == 0 {
            return Ok(Lane::Here(work));
        }
        let (orders_to, orders_from) = sync_channel::<Order>(frames_waiting);
        let (done_to, done_from) = sync_channel(1);
        let body = Box::new(move || {
            let done = orders_from.iter().try_for_each(|order| work.follow(order));
            let done = done.and_then(|()| work.loader.end_run());
            // Before it tells of a failure, nothing is left of what it has loaded.
            let done = match done {
                Ok(()) => Ok(work),
                Err(e) => {
                    drop(work);
                    Err(e)
                }
            };
            let _ = done_to.send(done);
        });
        let handle = db.spawn("braiddb-load", body)?;
        Ok(Lane::There { orders_to, done_from, handle })
    }

    /// Whether it takes the order; if not, [`Lane::finish`] tells why.
    fn order(&mut self, order: Order) -> Result<bool> {
        match self {
            Lane::Here(work) => work.follow(order).map(|()| true),
            Lane::There { orders_to, .. } => Ok(orders_to.send(order).is_ok()),
        }
    }

    /// What it has loaded, when it has followed all orders.
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

/// How frames are dealt out.
#[derive(Clone, Copy, Debug)]
pub struct Dealing {
    /// How many lanes; with 0, the caller does the work.
    pub lanes: usize,
    /// The bytes of a stripe, unpacked.
    pub stripe_bytes: u64,
    /// The frames that may wait in a lane.
    pub frames_waiting: usize,
    /// Whether operands are taken that a merge function can apply to no value.
    pub bad_operands: bool,
}

/// A tree that is being loaded.
pub struct TreeLoad {
    db: Db,
    tree: u32,
    id: FileId,
    sequence_max: SequenceNumber,
    dealing: Dealing,
    lanes: Vec<Lane>,
    present: usize,
    /// What the present stripe has.
    bytes: u64,
}

impl TreeLoad {
    /// Without records yet.
    pub fn new(db: &Db, tree: u32, id: FileId, sequence_max: SequenceNumber, dealing: Dealing) -> TreeLoad {
        TreeLoad { db: db.clone(), tree, id, sequence_max, dealing, lanes: Vec::new(), present: 0, bytes: 0 }
    }

    /// Whether a frame has records of this tree.
    pub fn is_of(&self, tree: u32) -> bool {
        self.tree == tree
    }

    /// Hands the next frame to a lane.
    pub fn take(&mut self, frame: Frame) -> Result<()> {
        // What comes in pieces stays in the lane that it began in, and so does a value with the operands on top of it.
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

    /// What is damaged is found by the lane that it goes to.
    fn begins_beneath(&self, frame: &Frame) -> bool {
        frame.clone().unpack(self.id).is_ok_and(|payload| begins_beneath(&payload))
    }

    fn order(&mut self, order: Order) -> Result<()> {
        let taken = self.lanes.get_mut(self.present).map_or(Ok(false), |lane| lane.order(order))?;
        if taken {
            return Ok(());
        }
        // It has ended by itself, so it has failed.
        let failed = self.lanes.swap_remove(self.present).finish().err();
        Err(failed.unwrap_or_else(|| Error::abort("a thread that loaded a dump ended too soon")))
    }

    /// Has all of it be there, by one commit; how much it was.
    pub fn finish(mut self) -> Result<(Loaded, Amount)> {
        let (mut all, mut amount, mut failed): (Option<EntryLoader>, _, _) = (None, Amount::default(), None);
        // Each is waited for, also after a failure: nothing is to be at work in the directory later.
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
