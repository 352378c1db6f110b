"""Who may do what: bundles of rules, decided by Cedar."""
