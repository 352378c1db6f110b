"""Texts in other query languages, and their equivalent in `.gq` for messages."""
