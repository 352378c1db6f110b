"""Upkeep: what changes no row and makes nothing visible that was not."""
