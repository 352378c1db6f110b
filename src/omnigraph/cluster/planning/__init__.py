"""The changes between the applied and the declared resources of a cluster; pure."""
