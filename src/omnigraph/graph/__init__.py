"""Branches, commits, snapshots, and the one door through which anything becomes visible."""
