"""Arguments that the server decides, and that a client may not choose: the actor and the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.engine.engine_choice import Engine, check_engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import check_text


@dataclass(frozen=True, slots=True)
class TokenActor:
    """The actor that the server derives from the bearer token; None if the server needs no token."""

    actor: str | None

    def check(
        self,
        actor: str | None,
        *,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Return the actor of the token. Raise `InvalidInput` for another actor or an invalid string."""
        check_text("actor", actor)
        check_text("message", message)
        check_text("if_commit", if_commit)
        check_text("idempotency_key", idempotency_key)
        if actor is not None and actor != self.actor:
            raise InvalidInput(
                "the token determines the actor",
                details={"actor": self.actor, "asked_for": actor},
                hint="connect with the token of that actor",
            )
        return self.actor


def refuse_spark(engine: Engine, spark: Any = None) -> None:
    """Raise `InvalidInput` if Spark is requested: its tasks need access to the storage of the graph."""
    check_engine(engine)
    if engine == "spark" or spark is not None:
        raise InvalidInput(
            "Spark needs direct access to the storage of the graph, which a server does not give",
            hint="open the graph by the address of its storage, or omit engine and spark",
        )
