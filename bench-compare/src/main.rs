//! BraidDB beside its peers: see README.md.
#![allow(dead_code)]
mod data;
mod engines;
mod histogram;
mod meter;
fn main() {}
