"""Uploaded files of multipart requests."""
