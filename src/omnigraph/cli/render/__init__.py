"""Output for terminals: tables, progress, errors."""
