//! The JNI library of the Java package `io.github.braiddb`: the native methods of its class
//! `Native`.
//!
//! All arguments are numbers. Keys, values, names and options travel in a direct buffer of Java,
//! whose address and capacity are the last two arguments: no function of JNI runs on the way, so a
//! call costs a transition and the copies. A method returns a number of at least 0, or a code of
//! [`boundary`]; it never throws, so a panic stops here and Java makes the exception.
//!
//! INVARIANT J1: a handle is the address of a box that [`boundary::give_handle`] made. Java frees a
//! box that threads share only from its `Cleaner`, when no call can use the handle, and any other
//! box under the lock that its calls hold. So a close drops the contents of a shared box and keeps
//! the box: later calls find it closed.

mod admin;
mod batch;
mod boundary;
mod bulk;
mod checkpoints;
mod codec;
mod database;
mod errors;
mod multi;
mod options;
mod place;
mod rows;
mod scan;
mod tree;
mod watch;
