//! `braid shell`: commands typed on a terminal, read from a pipe, or given with `-c`.

mod complete;
mod editor;
mod help;
mod place;
mod run;
mod script;
mod session;
mod syntax;
#[cfg(test)]
mod tests;
mod words;
mod writes;

pub use run::run;
