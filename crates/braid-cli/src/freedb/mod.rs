//! The FreeDB format: one text file per disc, in folders by category, in one `.tar.bz2`.

mod disc;
pub mod generator;
mod parser;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_oddities;
mod text;

pub use disc::Disc;
pub use parser::parse;
pub use text::decode_fields;
