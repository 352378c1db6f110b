"""Storage: the only package that touches bytes."""
