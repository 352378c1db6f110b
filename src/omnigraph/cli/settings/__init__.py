"""The settings of the user: configuration file, credentials, servers."""
