"""The Python API: the `Graph` interface, its arguments and results, and `LocalGraph` in `local`."""
