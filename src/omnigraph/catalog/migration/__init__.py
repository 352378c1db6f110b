"""Schema migration: planning a change and applying it to the catalog."""
