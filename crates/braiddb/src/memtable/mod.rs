//! The memtable: recent writes, in order, in memory.
