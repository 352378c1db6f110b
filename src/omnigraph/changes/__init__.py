"""What changed: diffs, the change feed, cursors and baselines."""
