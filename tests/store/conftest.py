"""Fixtures of the storage tests."""

from tests.support.places import uri

__all__ = ["uri"]
