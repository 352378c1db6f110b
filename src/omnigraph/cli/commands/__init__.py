"""The commands of `omnigraph`, a module for each."""
