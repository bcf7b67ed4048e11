mod barrier;
pub mod hazard_cell;
