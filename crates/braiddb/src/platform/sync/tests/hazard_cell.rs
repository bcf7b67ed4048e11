use crate::platform::HazardCell;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Noting,
    Noted,
}

type Act = (Moment, Box<dyn FnOnce()>);

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

pub fn reach(moment: Moment) {
    if let Some((_, act)) = ACT.with_borrow_mut(|act| act.take_if(|(when, _)| *when == moment)) {
        act();
    }
}

struct Value {
    number: usize,
    ended: Arc<Vec<AtomicBool>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.ended[self.number].store(true, Ordering::SeqCst);
    }
}

fn values(count: usize) -> (Arc<Vec<AtomicBool>>, impl Fn(usize) -> Arc<Value>) {
    let ended: Arc<Vec<AtomicBool>> = Arc::new((0..count).map(|_| AtomicBool::new(false)).collect());
    let of_all = Arc::clone(&ended);
    (ended, move |number| Arc::new(Value { number, ended: Arc::clone(&of_all) }))
}

fn has_ended(ended: &[AtomicBool], number: usize) -> bool {
    ended[number].load(Ordering::SeqCst)
}

#[test]
fn value_replaced_while_borrowed_drops_after_borrow() {
    let (ended, value) = values(3);
    let published = HazardCell::new(value(0));
    let borrowed = published.borrow().unwrap();
    assert_eq!(borrowed.number, 0);
    assert!(published.borrow().is_none(), "a thread borrows one value at a time");
    published.replace(value(1));
    published.replace(value(2));
    assert!(!has_ended(&ended, 0) && has_ended(&ended, 1), "nobody ever used the second");
    drop(borrowed);
    assert!(has_ended(&ended, 0));
    assert_eq!(published.borrow().unwrap().number, 2);
    drop(published);
    assert!(has_ended(&ended, 2));
}

/// The late reader must drop the value, since no other thread will.
#[test]
fn borrow_racing_with_replace_returns_none_and_drops_value() {
    for moment in [Moment::Noting, Moment::Noted] {
        let (ended, value) = values(2);
        let published = Arc::new(HazardCell::new(value(0)));
        let (other, next) = (Arc::clone(&published), value(1));
        ACT.set(Some((moment, Box::new(move || other.replace(next)))));
        assert!(published.borrow().is_none());
        assert!(has_ended(&ended, 0));
        assert_eq!(published.borrow().unwrap().number, 1);
    }
}

#[test]
fn value_replaced_while_unused_drops_at_once() {
    let (ended, value) = values(2);
    let published = HazardCell::new(value(0));
    drop(published.borrow());
    published.replace(value(1));
    assert!(has_ended(&ended, 0));
}

#[test]
fn borrow_after_retire_returns_none() {
    let (ended, value) = values(3);
    let published = HazardCell::new(value(0));
    let borrowed = published.borrow().unwrap();
    published.retire();
    assert_eq!(borrowed.number, 0, "who has it keeps it");
    drop(borrowed);
    assert!(published.borrow().is_none() && !has_ended(&ended, 0));
    published.replace(value(1));
    assert!(published.borrow().is_none() && has_ended(&ended, 0) && !has_ended(&ended, 1));
    let other = HazardCell::new(value(2));
    assert_eq!(other.borrow().unwrap().number, 2, "the thread's slot is free");
    drop(published);
    assert!(has_ended(&ended, 1));
}

/// Checks twice that a borrowed value was not dropped.
#[test]
fn value_borrowed_under_concurrent_replaces_stays_alive() {
    const ROUNDS: usize = 20_000;
    let (ended, value) = values(ROUNDS + 1);
    let published = HazardCell::new(value(0));
    let (is_over, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    // Threads end and start meanwhile and reuse the slots.
                    thread::scope(|inner| {
                        inner.spawn(|| {
                            let mut before = 0;
                            for turn in 0..2_000 {
                                // `None` during a replacement.
                                let Some(borrowed) = published.borrow() else { continue };
                                assert!(!has_ended(&ended, borrowed.number));
                                if turn % 64 == 0 {
                                    thread::yield_now();
                                }
                                assert!(!has_ended(&ended, borrowed.number));
                                assert!(borrowed.number >= before, "what was seen once is never older later");
                                before = borrowed.number;
                                looks.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    });
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 1..=ROUNDS {
            published.replace(value(round));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(looks.load(Ordering::Relaxed) > 0);
    let left: Vec<usize> = (0..=ROUNDS).filter(|&number| !has_ended(&ended, number)).collect();
    assert_eq!(left, [ROUNDS]);
}
