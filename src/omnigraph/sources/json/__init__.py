"""Readers of JSON: graph records, rows of one type, streams of values."""
