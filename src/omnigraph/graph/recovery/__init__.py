"""Recovery of interrupted writes: intents, leases, the identity of their owners, and temporary files."""
