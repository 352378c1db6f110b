"""The Python API: the `Graph` interface, its arguments, results and files, and `LocalGraph` in `local`."""
