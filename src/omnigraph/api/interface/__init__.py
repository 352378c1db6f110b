"""The parts of the `Graph` interface: reads, writes, history, changes, maintenance, branches and schema."""
