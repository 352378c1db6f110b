"""Cached tables: columns, ids and row addresses of pinned tables in bounded memory."""
