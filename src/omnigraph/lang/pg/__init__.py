"""The schema language, ``.pg``."""
