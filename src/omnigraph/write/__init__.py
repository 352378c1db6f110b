"""What changes a graph: mutations and loads, validated whole before anything is visible."""
