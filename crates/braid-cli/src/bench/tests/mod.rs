//! Tests of what can be tested without a database; the command as a whole is tested in `tests/command/bench.rs`.

mod choices;
mod lies;
mod parts;
