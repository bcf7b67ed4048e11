//! A follower's states: each is that after a commit, at least as new as the last one in the log,
//! and never changes.

use super::{
    boundaries::{Found, read_all},
    outcome::{Outcome, Said},
    steps::HOUR_US,
    world::World,
};
use crate::common::PATH;
use braiddb::{Db, Follower};
use braiddb_sim::SimRuntime;
use std::sync::Arc;

pub struct Following {
    follower: Follower,
    runtime: Arc<SimRuntime>,
    shown: u64,
    kept: Option<(Db, Found, u64)>,
}

impl World<'_> {
    pub fn advance_follower(&self, hours: u8) {
        if let Some(following) = &self.following {
            following.runtime.advance_us(u64::from(hours) * HOUR_US);
        }
    }

    /// A new follower first opens the database read-only.
    pub fn follow(&mut self, fresh: bool) -> Outcome {
        let least = self.last_kept();
        if fresh || self.following.is_none() {
            let runtime = self.new_runtime();
            let builder = || self.settings.plain_builder(&self.disk, &runtime);
            let db = builder().open_read_only(PATH).said("open for reading only")?;
            self.find_boundary(&db, least).map_err(|text| format!("{text}, opened for reading only"))?;
            let follower = builder().refresh_every(None).open_follower(PATH).said("open a follower")?;
            self.following = Some(Following { follower, runtime, shown: 0, kept: None });
        }
        let mut following = self.following.take().expect("just created");
        let before = following.follower.db();
        let refreshed = following.follower.refresh().said("refresh")?;
        let db = following.follower.db();
        let behind = self.find_boundary(&db, least.max(following.shown)).map_err(|text| {
            format!("{text}, in a follower that shows commit {} and showed {}", refreshed.sequence, following.shown)
        })?;
        self.seen.refreshes.add(1);
        self.seen.refreshes_behind.add(u64::from(behind > 0));
        ensure!(behind == 0 || least < self.last(), "the follower is {behind} commits behind");
        ensure!(
            refreshed.sequence >= following.shown && refreshed.sequence <= self.last(),
            "it shows commit {} after {}; the last is {}",
            refreshed.sequence,
            following.shown,
            self.last()
        );
        ensure!(
            refreshed.sequence >= least || self.crashes > 0,
            "it shows commit {}, although {least} exists",
            refreshed.sequence
        );
        if following.kept.is_none() && refreshed.has_changed {
            following.kept = Some((before.clone(), read_all(&before)?, self.hours));
        }
        following.shown = refreshed.sequence;
        let again = following.follower.refresh().said("refresh again")?;
        ensure!(!again.has_changed && again.records == 0, "an idle refresh found changes: {again:?}");
        self.following = Some(following);
        Ok(())
    }

    pub fn read_follower(&mut self) -> Outcome {
        let hours = self.hours;
        let Some(following) = &mut self.following else { return Ok(()) };
        let Some((db, expected, since)) = following.kept.take() else { return Ok(()) };
        if hours == since {
            self.seen.states_kept.add(1);
            ensure!(read_all(&db)? == expected, "an older state has changed");
        }
        Ok(())
    }
}
