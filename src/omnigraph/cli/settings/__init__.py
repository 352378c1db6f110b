"""The operator's settings: configuration, credentials, servers."""
