"""Columns, ids and row addresses of pinned tables, cached in bounded memory."""
