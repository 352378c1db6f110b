"""Limits of the current work: deadlines, cancellation, and budgets of memory, rows and edges."""
