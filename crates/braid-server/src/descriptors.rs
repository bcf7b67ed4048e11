//! Shares the descriptors of the process between connections and the files of its database.
//!
//! Each connection takes one. Tables of databases take up to [`Builder::open_files_max`], by default
//! half. Logs, locks, uploads, backups, and the other parts of a program need the rest.
//!
//! [`Builder::open_files_max`]: braiddb::Builder::open_files_max

/// Maximum descriptors for neither connections nor tables; with fewer than eight times as many, an eighth.
const OTHERS_MAX: u64 = 1024;

/// The system's tasks are counted in a `usize` with three bits less.
const CONNECTIONS_MAX: usize = u32::MAX as usize >> 3;

fn others(limit: u64) -> u64 {
    (limit / 8).min(OTHERS_MAX)
}

/// Returns how many connections a process with this limit may have beside `tables` of a database.
/// Zero tables: an unknown number.
pub fn connections_max(wanted: usize, limit: Option<u64>, tables: usize) -> usize {
    let free = limit.map_or(u64::MAX, |limit| {
        // At least an eighth is for connections, however many files the tables may take.
        let most = limit - limit / 8 - others(limit);
        let tables = if tables == 0 { limit / 2 } else { most.min(tables as u64) };
        limit - tables - others(limit)
    });
    wanted.min(usize::try_from(free).unwrap_or(usize::MAX)).clamp(1, CONNECTIONS_MAX)
}

/// Returns how many tables a database may keep open beside these connections: `None` if the
/// default of half leaves enough, never less than a quarter.
pub fn tables_max(connections: usize, limit: Option<u64>) -> Option<usize> {
    let limit = limit?;
    let left = limit.saturating_sub(others(limit)).saturating_sub(connections as u64);
    (left < limit / 2).then(|| usize::try_from(left.max(limit / 4)).unwrap_or(usize::MAX))
}

/// Returns the limit of open descriptors (`ulimit -n`), if the system has one.
#[cfg(unix)]
pub fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
pub fn limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_database() {
        assert_eq!(connections_max(1024, Some(256), 128), 96);
        assert_eq!(connections_max(1024, Some(256), 0), 96);
        // Tables above half of the limit were counted as half.
        assert_eq!(connections_max(1024, Some(256), 160), 64);
        assert_eq!(connections_max(1024, Some(256), usize::MAX), 32);
        assert_eq!(connections_max(1024, Some(256), 16), 208);
        assert_eq!(connections_max(1024, Some(4096), 2048), 1024);
        assert_eq!(connections_max(1024, None, 0), 1024);
        assert_eq!(connections_max(0, Some(1), 4), 1);
        assert_eq!(connections_max(usize::MAX, Some(u64::MAX), 4), CONNECTIONS_MAX);
    }

    /// Three eighths of 20,000 were 7,500.
    #[test]
    fn half_of_the_descriptors_may_be_connections() {
        for limit in [1024, 4096, 20_000, 1 << 20] {
            for wanted in [limit / 4, limit / 2, limit - limit / 4 - others(limit)] {
                let tables = tables_max(wanted as usize, Some(limit));
                let has = tables.unwrap_or((limit / 2) as usize);
                assert_eq!(connections_max(wanted as usize, Some(limit), has) as u64, wanted, "{limit}");
                assert!(has as u64 >= limit / 4 && has as u64 + wanted + others(limit) <= limit, "{limit}: {has}");
            }
            assert_eq!(tables_max(usize::MAX, Some(limit)), Some((limit / 4) as usize));
        }
        assert_eq!(tables_max(1024, None), None);
    }
}
