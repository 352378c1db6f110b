"""Export a snapshot as graph records or files."""
