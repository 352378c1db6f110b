"""Spark integration: ``format("omnigraph")`` reads, writes and streams graphs in any session it is registered
with.
"""

from omnigraph.spark.registration import register

__all__ = ["register"]
