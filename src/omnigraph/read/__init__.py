"""Reading a graph: from a checked query to rows."""
