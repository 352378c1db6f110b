"""Branches, commits, snapshots, the swap that makes a commit visible, and recovery in `recovery`."""
