//! Reference model.
