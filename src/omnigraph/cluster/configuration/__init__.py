"""The declared configuration of a cluster: `cluster.yaml` and the files that it names."""
