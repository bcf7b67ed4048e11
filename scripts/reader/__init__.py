"""Reads the files of BraidDB. Written from docs/internals/format.md, not from the engine's sources; standard library only."""
