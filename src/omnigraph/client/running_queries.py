"""The running requests of a remote graph."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from omnigraph.client.request_names import segment

if TYPE_CHECKING:
    from omnigraph.client.transport import Transport


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A request that a server is running. `query` is the text of a query, cut after 2,000 characters.

    `state` is ``waiting`` or ``running``. `memory_bytes` is the estimated memory of its largest step so far.
    """

    id: str
    actor_id: str | None
    operation: str
    state: str
    query: str | None
    started_at: datetime
    seconds: float
    memory_bytes: int
    visited_edges: int
    cancellable: bool
    request_id: str

    @classmethod
    def of(cls, members: dict[str, Any]) -> RunningQuery:
        """Return the entry of a response."""
        names = (*cls.__slots__,)
        found = {name: members[name] for name in names}
        return cls(**{**found, "started_at": datetime.fromisoformat(found["started_at"])})


def list_running(transport: Transport) -> list[RunningQuery]:
    """Return the running requests of the graph, the oldest first."""
    return transport.call(
        "GET", "/running", lambda answer: [RunningQuery.of(item) for item in answer["queries"]]
    )


def cancel_running(transport: Transport, id_: str) -> bool:
    """Cancel a running request; return False if it is a write that has begun."""
    return transport.call("DELETE", f"/running/{segment(id_)}", lambda answer: bool(answer["cancelled"]))
