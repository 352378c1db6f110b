"""Terminal output: tables, progress bars, errors."""
