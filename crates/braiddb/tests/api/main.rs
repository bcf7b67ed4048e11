//! Tests of the public interface, in one program: each costs seconds to build.

mod archive_damage;
mod backups;
mod birthplace;
mod debug_form;
mod io_uring_denied;
mod open_files;
mod option_ranges;
mod scan_resistance;
