"""Exports of a snapshot as graph records or files."""
