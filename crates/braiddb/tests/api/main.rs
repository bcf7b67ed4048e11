//! Tests of the public interface, in one program: each costs seconds to build.

mod archive_copies;
mod archive_damage;
mod async_commits;
mod backups;
mod birthplace;
mod change_streams;
mod debug_form;
mod events;
mod held_syncs;
mod io_uring_denied;
mod open_files;
mod option_ranges;
mod scan_resistance;
