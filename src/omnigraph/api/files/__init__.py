"""The files that the API reads and writes: source texts, exports and baselines."""
