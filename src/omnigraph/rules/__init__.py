"""Constraint checks: what rows must satisfy on their own and together."""
