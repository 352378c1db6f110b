"""The two languages, `.pg` schemas and `.gq` queries, down to a typed IR. Pure: no storage, no engine."""
