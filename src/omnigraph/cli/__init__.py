"""The `omnigraph` command: reads arguments, environment and files, and renders what the library answers."""
