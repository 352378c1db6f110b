"""The `omnigraph` command line: parses arguments, calls the library and renders the result."""
