"""The accepted schema: identities, physical names, keys, and what it takes to change it. Pure: no storage."""
