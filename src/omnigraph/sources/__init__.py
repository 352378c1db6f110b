"""Readers of load inputs: files, DataFrames, Python records and streams, converted to typed rows."""
