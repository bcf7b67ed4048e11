//! Tables and plots of the results: `report.md`, `ratios-N.svg`, `load-N.svg` and, with several N,
//! `sizes.svg`.

mod load;
mod parts;
mod plot;
mod standing;
mod summary;
mod table;

pub use summary::median;
pub use table::{one_line, write};
