"""Migration plans between two schemas."""
