"""OmniGraph measured against its peers: the same graph, the same questions, the same run."""
