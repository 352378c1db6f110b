"""Read a graph: plan, match and project checked queries; look up entities; export."""
