"""Fuzzing: mutated copies of every file format that ensembed reads; `make fuzz` runs it, CONTRIBUTING describes it."""
