"""The decision log: one record at level INFO for each access that a policy allows or denies.

Records have the members of a decision in `fields`. Applications configure the logger `omnigraph.policy` as usual;
without configuration nothing is written. The HTTP server writes the records to its log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnigraph.policy.gate import Access, Decision

LOGGER: Final = logging.getLogger("omnigraph.policy")
MESSAGE: Final = "policy decision"


def log_decision(graph_id: str | None, actor: str | None, access: Access, decision: Decision) -> None:
    """Log a decision. `graph_id` is None for the server. The caller of this function is not looked up."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    record = logging.LogRecord(LOGGER.name, logging.INFO, __file__, 0, MESSAGE, None, None)
    record.fields = {
        "graph_id": graph_id,
        "actor": actor,
        "action": access.action,
        "branch": access.branch,
        "target_branch": access.target_branch,
        "allowed": decision.allowed,
        "matched_rule_id": decision.matched_rule_id,
    }
    LOGGER.handle(record)
