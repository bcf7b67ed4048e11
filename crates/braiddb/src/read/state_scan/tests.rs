//! INVARIANT S1 in each order of a reader's and the writer's steps.

use super::*;
use std::cell::RefCell;

const TREE: TreeId = TreeId(1);

/// The steps of a reader: load the count, load the state, let the scan rest.
const STEPS: usize = 3;

/// Places between the writer's steps: before the change, before and after its store, after it.
const PLACES: usize = 4;

struct Reader {
    /// The place of each step.
    places: [usize; STEPS],
    steps_done: usize,
    age: u64,
    scan: Option<Box<StateScan>>,
}

struct Cell {
    present: RefCell<Arc<ReadState>>,
    resting: RestingScans,
}

impl Reader {
    fn run_steps_at(&mut self, place: usize, cell: &Cell) {
        while self.places.get(self.steps_done) == Some(&place) {
            match self.steps_done {
                0 => self.age = cell.resting.changes(),
                1 => self.scan = Some(StateScan::new(Arc::clone(&cell.present.borrow()), self.age, 0, TREE)),
                _ => cell.resting.leave(self.scan.take().unwrap()),
            }
            self.steps_done += 1;
        }
    }
}

/// Takes all scans at rest; asserts that each has the present state, and returns their number.
fn take_all(cell: &Cell) -> usize {
    let scans: Vec<_> = std::iter::from_fn(|| cell.resting.take(0, TREE)).collect();
    for scan in &scans {
        assert!(Arc::ptr_eq(&scan.state, &cell.present.borrow()), "a scan at rest outlived its state");
    }
    scans.len()
}

fn orders() -> impl Iterator<Item = [usize; STEPS]> {
    let places = |from| from..PLACES;
    places(0).flat_map(move |a| places(a).flat_map(move |b| places(b).map(move |c| [a, b, c])))
}

#[test]
fn leave_in_each_order_with_a_change_keeps_only_scans_of_the_present_state() {
    assert_eq!(orders().count(), 20);
    for places in orders() {
        let cell = Cell { present: RefCell::new(Arc::new(ReadState::empty())), resting: RestingScans::default() };
        let mut reader = Reader { places, steps_done: 0, age: 0, scan: None };
        reader.run_steps_at(0, &cell);
        cell.resting.change(|| {
            assert!(cell.resting.take(0, TREE).is_none(), "{places:?}: a scan rests while its state is replaced");
            reader.run_steps_at(1, &cell);
            *cell.present.borrow_mut() = Arc::new(ReadState::empty());
            reader.run_steps_at(2, &cell);
        });
        reader.run_steps_at(3, &cell);
        // All steps after the change: the scan is of the present state, and rests.
        assert_eq!(take_all(&cell), usize::from(places == [3, 3, 3]), "{places:?}");
    }
}

#[test]
fn change_drops_the_scans_at_rest() {
    let state = Arc::new(ReadState::empty());
    let resting = RestingScans::default();
    resting.leave(StateScan::new(Arc::clone(&state), resting.changes(), 0, TREE));
    assert!(Arc::strong_count(&state) > 1, "the scan rests");
    resting.change(|| {});
    assert_eq!(Arc::strong_count(&state), 1);
    assert!(resting.take(0, TREE).is_none());
}
