"""The implementation of `Graph` for a graph that this process opens in its storage."""
