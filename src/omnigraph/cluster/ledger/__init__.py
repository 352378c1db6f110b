"""The stored state of a cluster: ledger, lock, payloads, recovery intents, approvals and history."""
