"""Bulk loads: many rows, validated together and committed once."""
