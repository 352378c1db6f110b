"""Row-level differences between two versions of a table."""
