"""Uploads: multipart bodies, rejected records and temporary files."""
