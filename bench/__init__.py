"""Benchmarks of OmniGraph against its peers: the same graph and the same queries, in one run."""
