"""The operations that change a cluster: apply, import, refresh, recovery, approval and rollback."""
