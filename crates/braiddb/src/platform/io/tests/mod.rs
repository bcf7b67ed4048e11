//! The other files are modules of the files that they test.

mod layer;
