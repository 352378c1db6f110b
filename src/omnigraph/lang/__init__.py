"""Compilers of the two languages: `.pg` schemas and `.gq` queries. Pure functions without I/O."""
