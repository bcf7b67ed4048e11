//! The three eviction queues: linked lists through one table of frames.

const NONE: u32 = u32::MAX;

/// A queue, from the newest unit to the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// No queue: free, being filled, or waiting for reclamation.
    None,
    Nursery,
    /// Loaded, not used again yet.
    Cold,
    Hot,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FrameInfo {
    pub file: u32,
    pub unit: u32,
    /// Bytes that it counts.
    pub cost: u32,
    pub queue: Queue,
    /// Came from the hot to the cold queue and was not touched since.
    pub has_fallen: bool,
    newer: u32,
    older: u32,
}

impl FrameInfo {
    pub const VACANT: FrameInfo =
        FrameInfo { file: NONE, unit: 0, cost: 0, queue: Queue::None, has_fallen: false, newer: NONE, older: NONE };
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    count: usize,
    bytes: usize,
}

const EMPTY: List = List { newest: NONE, oldest: NONE, count: 0, bytes: 0 };

#[derive(Debug)]
pub(super) struct Lists {
    frames: Vec<FrameInfo>,
    singles: Vec<FrameInfo>,
    single_bit: u32,
    queues: [List; 3],
}

impl Lists {
    pub fn new(single_bit: u32) -> Lists {
        Lists { frames: Vec::new(), singles: Vec::new(), single_bit, queues: [EMPTY; 3] }
    }

    /// Panics before [`Lists::admit`] was called for the frame.
    pub fn info(&mut self, frame: u32) -> &mut FrameInfo {
        match frame & self.single_bit {
            0 => &mut self.frames[frame as usize],
            bit => &mut self.singles[(frame ^ bit) as usize],
        }
    }

    pub fn admit(&mut self, frame: u32) {
        let (table, index) = match frame & self.single_bit {
            0 => (&mut self.frames, frame as usize),
            bit => (&mut self.singles, (frame ^ bit) as usize),
        };
        if table.len() <= index {
            table.resize(index + 1, FrameInfo::VACANT);
        }
    }

    pub fn singles(&self) -> usize {
        self.singles.len()
    }

    pub fn count(&self, queue: Queue) -> usize {
        index(queue).map_or(0, |at| self.queues[at].count)
    }

    pub fn bytes(&self, queue: Queue) -> usize {
        index(queue).map_or(0, |at| self.queues[at].bytes)
    }

    pub fn oldest(&self, queue: Queue) -> Option<u32> {
        let frame = self.queues[index(queue)?].oldest;
        (frame != NONE).then_some(frame)
    }

    /// The frame must be in no queue.
    pub fn push(&mut self, frame: u32, queue: Queue) {
        let Some(at) = index(queue) else { return };
        let newest = self.queues[at].newest;
        let info = self.info(frame);
        debug_assert_eq!(info.queue, Queue::None);
        (info.queue, info.newer, info.older) = (queue, NONE, newest);
        let cost = info.cost as usize;
        if newest == NONE {
            self.queues[at].oldest = frame;
        } else {
            self.info(newest).newer = frame;
        }
        let list = &mut self.queues[at];
        list.newest = frame;
        list.count += 1;
        list.bytes += cost;
    }

    pub fn unlink(&mut self, frame: u32) {
        let info = self.info(frame);
        let FrameInfo { queue, newer, older, cost, .. } = *info;
        let Some(at) = index(queue) else { return };
        (info.queue, info.newer, info.older) = (Queue::None, NONE, NONE);
        match newer {
            NONE => self.queues[at].newest = older,
            newer => self.info(newer).older = older,
        }
        match older {
            NONE => self.queues[at].oldest = newer,
            older => self.info(older).newer = newer,
        }
        let list = &mut self.queues[at];
        list.count -= 1;
        list.bytes -= cost as usize;
    }

    pub fn shift(&mut self, frame: u32, queue: Queue) {
        self.unlink(frame);
        self.push(frame, queue);
    }
}

fn index(queue: Queue) -> Option<usize> {
    match queue {
        Queue::None => None,
        Queue::Nursery => Some(0),
        Queue::Cold => Some(1),
        Queue::Hot => Some(2),
    }
}
