"""Backup, restore and clone: consistent copies of a graph between storages."""
