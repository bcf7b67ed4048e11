//! The public interface, used as a program would: one program, since each costs seconds to build.

mod archive_damage;
mod backups;
mod birthplace;
mod debug_form;
mod io_uring_denied;
mod open_files;
mod option_ranges;
mod scan_resistance;
