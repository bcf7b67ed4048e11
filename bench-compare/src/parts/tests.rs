//! Correct answers pass, and each wrong one is found.

use super::part::Part;
use crate::{
    data::{Checksum, Key, KeyOrder, Values},
    engines::Reader,
};
use anyhow::Result;

const ROWS: u64 = 500;

struct List {
    rows: Vec<(Key, Vec<u8>)>,
    hole: Option<usize>,
}

impl List {
    fn present(&self) -> impl DoubleEndedIterator<Item = &(Key, Vec<u8>)> {
        self.rows.iter().enumerate().filter(|(at, _)| Some(*at) != self.hole).map(|(_, row)| row)
    }
}

impl Reader for List {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let row = self.present().find(|(other, _)| other == key);
        row.inspect(|(_, value)| found(value));
        Ok(row.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let _ = self.present().skip_while(|(key, _)| &key[..] < from).all(|(key, value)| visit(key, value));
        Ok(())
    }

    fn scan_back(&mut self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let _ = self.present().rev().all(|(key, value)| visit(key, value));
        Ok(())
    }
}

#[test]
fn parts_on_list_with_missing_row_fail() -> Result<()> {
    let values = Values::small();
    let mut sorted: Vec<(Key, u64)> = (0..ROWS).map(|row| (KeyOrder::Random.key(row), row)).collect();
    sorted.sort_unstable();
    let value_of = |row: u64| {
        let mut value = Vec::new();
        values.fill(row, 0, &mut value);
        value
    };
    let rows: Vec<(Key, Vec<u8>)> = sorted.iter().map(|(key, row)| (*key, value_of(*row))).collect();
    let mut list = List { rows, hole: None };
    for part in Part::ALL {
        let keys = part.keys(ROWS, 4000);
        let expected = part.expected(&sorted, &values, &keys, 4000);
        for hole in [None, Some(ROWS as usize / 2)] {
            list.hole = hole;
            let mut seen = Checksum::default();
            part.ask(&mut list, &keys, (ROWS, 4000), &mut seen)?;
            let is_right = hole.is_none() || part == Part::GetMiss;
            assert_eq!(seen == expected, is_right, "{} with hole {hole:?}", part.name());
        }
    }
    Ok(())
}
