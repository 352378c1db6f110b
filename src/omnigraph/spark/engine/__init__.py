"""Queries, loads and table reads distributed over Spark tasks."""
