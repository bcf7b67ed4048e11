//! Bookings of rooms with typed trees: tuple keys, serde records, indexes, and a rule that spans
//! records.
//!
//!     cargo run -p braiddb-typed --example bookings
//!
//! - A booking's key is its room and its begin, so that the bookings of a room are neighbours.
//! - "No two bookings of a room overlap" is checked by a range read in the transaction. So of two
//!   concurrent bookings for one hour, the second conflicts, runs again, and finds the first.
//! - The indexes by guest and by code change in the same commit as the record.
//!
//! It panics on a wrong result.

use braiddb::Db;
use braiddb_typed::{Result, TupleKey, TypedTree};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, TupleKey)]
struct Slot {
    room: String,
    begin: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Booking {
    end: u32,
    guest: String,
    code: String,
    #[serde(default)] // records of older versions of the program have none
    note: Option<String>,
}

#[derive(Clone)]
struct Hotel {
    db: Db,
    bookings: TypedTree<Slot, Booking>,
}

impl Hotel {
    fn open(db: &Db) -> Result<Hotel> {
        let bookings = TypedTree::builder(db, "bookings")
            .unique_index("code", |booking: &Booking| booking.code.clone())
            .index("guest", |booking: &Booking| booking.guest.clone())
            .open()?;
        Ok(Hotel { db: db.clone(), bookings })
    }

    /// Books a room for the hours from `begin` up to `end`. Returns false if it is taken.
    fn book(&self, room: &str, begin: u32, end: u32, guest: &str) -> Result<bool> {
        let slot = |begin| Slot { room: room.to_owned(), begin };
        let code = format!("{room}-{begin}");
        let booking = Booking { end, guest: guest.to_owned(), code, note: None };
        self.db.try_update(|tx| -> Result<bool> {
            let bookings = self.bookings.in_tx(tx);
            // Bookings of a room do not overlap: only the last one that begins before `end` can reach
            // beyond `begin`.
            let before = bookings.range(slot(0)..slot(end)).next_back().transpose()?;
            if before.is_some_and(|(_, booking)| booking.end > begin) {
                return Ok(false);
            }
            bookings.put(&slot(begin), &booking)?;
            Ok(true)
        })
    }

    fn bookings_of(&self, guest: &str) -> Result<Vec<(Slot, Booking)>> {
        self.bookings.by_index("guest", &guest).collect()
    }

    /// Returns the first two bookings of a room that overlap.
    fn overlap(&self) -> Result<Option<(Slot, Slot)>> {
        let all = self.bookings.iter().collect::<Result<Vec<_>>>()?;
        let overlap = all.windows(2).find(|pair| pair[0].0.room == pair[1].0.room && pair[0].1.end > pair[1].0.begin);
        Ok(overlap.map(|pair| (pair[0].0.clone(), pair[1].0.clone())))
    }
}

fn main() -> Result<()> {
    let db = Db::in_memory()?; // or Db::open("hotel.db")?
    let hotel = Hotel::open(&db)?;
    assert!(hotel.book("red", 9, 11, "ann")?);
    assert!(!hotel.book("red", 10, 12, "bob")?);
    assert!(hotel.book("red", 11, 12, "bob")?);
    assert!(hotel.book("blue", 10, 12, "ann")?);

    let rooms: Vec<String> = hotel.bookings_of("ann")?.into_iter().map(|(slot, _)| slot.room).collect();
    assert_eq!(rooms, ["blue", "red"]); // in the order of their keys
    let (slot, booking) = hotel.bookings.get_by("code", &"red-11")?.expect("it was booked");
    assert_eq!((slot.begin, booking.guest.as_str()), (11, "bob"));

    // A change of the guest moves the index entry.
    hotel.bookings.update(&slot, |booking| booking.map(|old| Booking { guest: "eve".to_owned(), ..old }))?;
    assert_eq!((hotel.bookings_of("bob")?.len(), hotel.bookings_of("eve")?.len()), (0, 1));

    // A unique index refuses a second record with the same code, and nothing is written.
    let error = hotel.bookings.put(&Slot { room: "red".to_owned(), begin: 20 }, &booking).unwrap_err();
    assert!(error.is_not_unique(), "{error}");

    // Four threads try to book two hours from each hour on. Every second attempt finds the room taken,
    // and of the others one succeeds.
    let booked = std::thread::scope(|scope| {
        let threads = ["ann", "bob", "eve", "joe"].map(|guest| {
            let hotel = hotel.clone();
            scope.spawn(move || -> Result<u32> {
                (0..50).try_fold(0, |sum, n| Ok(sum + u32::from(hotel.book("green", n, n + 2, guest)?)))
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<u32>>()
    })?;
    assert_eq!(hotel.overlap()?, None);
    assert_eq!((booked, hotel.bookings.prefix(&("green",)).count()), (25, 25));
    assert!(hotel.bookings.verify_indexes()?.problems.is_empty());
    Ok(())
}
