"""Local execution engine: Arrow kernels, CSR adjacency, DuckDB, the read cache, table diffs."""
