"""Stored segments of full-text indexes."""
