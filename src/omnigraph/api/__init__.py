"""The public Python API; `omnigraph` itself re-exports it."""
