//! Tables and plots of the results: `report.md`, `ratios.svg` and, where there are several N, `sizes.svg`.

mod load;
mod parts;
mod plot;
mod standing;
mod summary;
mod table;

pub use summary::median;
pub use table::{one_line, write};
