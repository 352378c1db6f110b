"""Column mappings of loads: input columns, casts and constants of properties."""
