"""Reads the files of BraidDB. Written from docs/format.md, not from the engine's sources; standard library only."""
