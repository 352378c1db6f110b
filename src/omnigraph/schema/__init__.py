"""Schema changes applied to a graph: migration steps and backfills."""
