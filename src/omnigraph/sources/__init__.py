"""Where rows come from: files, DataFrames, Python records and streams, read into typed rows."""
