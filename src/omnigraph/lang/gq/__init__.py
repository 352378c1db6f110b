"""The query language, ``.gq``."""
