//! Expiry times of a run's entries, to plan merges without reading the run.

use crate::codec::{ByteReader, put_varint};

const TIMES_MAX: usize = 17;

/// Maximum samples while a run is written.
const SAMPLES_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// Entries that expire.
    pub entries: u64,
    /// Earliest, latest and evenly spaced quantiles of the expiry times, ascending, in microseconds
    /// since 1970.
    pub times: Vec<u64>,
}

impl Expiries {
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub fn earliest(&self) -> Option<u64> {
        self.times.first().copied()
    }

    pub fn latest(&self) -> Option<u64> {
        self.times.last().copied()
    }

    /// Estimate; zero exactly if none has expired.
    pub fn expired_by(&self, time: u64) -> u64 {
        let past = self.times.partition_point(|&t| t <= time) as u64;
        let times = self.times.len() as u64;
        match past {
            0 => 0,
            _ if past == times => self.entries,
            _ if times == self.entries => past,
            _ => {
                let share = u128::from(self.entries) * u128::from(past - 1) / u128::from(times - 1);
                (share as u64).max(1)
            }
        }
    }

    /// Varints: entries, number of times, first time, then differences.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.entries);
        put_varint(out, self.times.len() as u64);
        let mut before = 0;
        for &time in &self.times {
            put_varint(out, time - before);
            before = time;
        }
    }

    pub fn decode(reader: &mut ByteReader<'_>) -> Option<Expiries> {
        let entries = reader.varint()?;
        let count = usize::try_from(reader.varint()?).ok()?;
        if count == 0 || count > TIMES_MAX || count as u64 > entries {
            return None;
        }
        let (mut times, mut time) = (Vec::with_capacity(count), 0u64);
        for _ in 0..count {
            time = time.checked_add(reader.varint()?)?;
            times.push(time);
        }
        Some(Expiries { entries, times })
    }
}

#[derive(Debug, Default)]
pub struct ExpiryCounter {
    entries: u64,
    earliest: Option<u64>,
    latest: u64,
    samples: Vec<u64>,
    state: u64,
}

impl ExpiryCounter {
    pub fn add(&mut self, time: u64) {
        self.earliest = Some(self.earliest.map_or(time, |earliest| earliest.min(time)));
        self.latest = self.latest.max(time);
        self.entries += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(time);
            return;
        }
        // Keys follow patterns, so the sample must be random.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = (u128::from(self.state) * u128::from(self.entries)) >> 64;
        if let Some(sample) = usize::try_from(chosen).ok().and_then(|at| self.samples.get_mut(at)) {
            *sample = time;
        }
    }

    pub fn finish(mut self) -> Expiries {
        let Some(earliest) = self.earliest else { return Expiries::default() };
        self.samples.sort_unstable();
        if self.samples.len() > TIMES_MAX {
            let (count, last) = (self.samples.len(), TIMES_MAX - 1);
            let mut times: Vec<u64> = (0..=last).map(|at| self.samples[at * (count - 1) / last]).collect();
            (times[0], times[last]) = (earliest, self.latest);
            self.samples = times;
        }
        Expiries { entries: self.entries, times: self.samples }
    }
}

#[cfg(test)]
mod tests {
    use super::{Expiries, ExpiryCounter, TIMES_MAX};
    use crate::codec::ByteReader;

    fn counted(times: impl IntoIterator<Item = u64>) -> Expiries {
        let mut counter = ExpiryCounter::default();
        times.into_iter().for_each(|time| counter.add(time));
        counter.finish()
    }

    #[test]
    fn expired_by_of_few_entries_is_exact() {
        let expiries = counted([50, 10, 30, 30]);
        assert_eq!(expiries, Expiries { entries: 4, times: vec![10, 30, 30, 50] });
        let by: Vec<u64> = [9, 10, 29, 30, 49, 50, 99].iter().map(|&time| expiries.expired_by(time)).collect();
        assert_eq!(by, [0, 1, 1, 3, 3, 4, 4]);
        assert!(counted([]).is_empty() && counted([]).expired_by(u64::MAX) == 0);
    }

    #[test]
    fn expired_by_of_many_entries_is_approximate() {
        for count in [18_u64, 100, 4096, 4097, 100_000] {
            let expiries = counted((0..count).map(|n| 1000 + n * 7919 % count));
            assert_eq!((expiries.entries, expiries.times.len()), (count, TIMES_MAX));
            assert_eq!((expiries.earliest(), expiries.latest()), (Some(1000), Some(1000 + count - 1)));
            assert_eq!((expiries.expired_by(999), expiries.expired_by(1000 + count)), (0, count));
            assert!(expiries.expired_by(1000) >= 1);
            for tenth in 1..10 {
                let (real, reported) = (count * tenth / 10, expiries.expired_by(1000 + count * tenth / 10));
                assert!(reported.abs_diff(real) <= count / 8 + 1, "{reported} of {count} for {real}");
            }
        }
    }

    #[test]
    fn expired_by_with_key_patterns_is_approximate() {
        for step in [2, 3, 4, 8, 16, 64] {
            let expiries = counted((0..100_000).map(|n| if n % step == 0 { 1_000_000 + n } else { 10 }));
            let (reported, real) = (expiries.expired_by(1000), 100_000 - 100_000 / step);
            assert!(reported.abs_diff(real) < 9000, "{reported} for {real}");
        }
    }

    #[test]
    fn expired_by_of_damaged_numbers_does_not_panic() {
        let expiries = Expiries { entries: u64::MAX, times: vec![1, 2, 3, 9] };
        assert!(expiries.expired_by(5) > u64::MAX / 2);
    }

    #[test]
    fn expiries_round_trip_and_decode_refuses_invalid() {
        for expiries in [counted([7]), counted([u64::MAX, 0]), counted((0..1000).map(|n| n * n))] {
            let mut bytes = Vec::new();
            expiries.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(Expiries::decode(&mut reader), Some(expiries));
            assert!(reader.is_at_end());
            for len in 0..bytes.len() {
                assert_eq!(Expiries::decode(&mut ByteReader::new(&bytes[..len])), None);
            }
        }
        for bytes in
            [&[0, 0][..], &[1, 0], &[1, 2, 5, 5], &[99, 18, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]
        {
            assert_eq!(Expiries::decode(&mut ByteReader::new(bytes)), None);
        }
    }
}
