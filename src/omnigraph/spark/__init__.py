"""Graphs in Spark: ``format("omnigraph")`` to read, write and stream, on any session they are registered with."""

from omnigraph.spark.registration import register

__all__ = ["register"]
