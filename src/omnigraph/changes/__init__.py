"""Changes between states: diffs, the change feed, cursors and baselines."""
