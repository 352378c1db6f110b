"""Fixtures of the graph tests."""

from tests.support.places import uri

__all__ = ["uri"]
