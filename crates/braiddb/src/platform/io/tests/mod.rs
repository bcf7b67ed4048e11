//! Tests of the room. The other files here are modules of the files that they test.

mod layer;
