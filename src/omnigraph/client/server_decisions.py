"""What a server decides, and not its clients: who acts, and what computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.engine.engine_choice import Engine, check_engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import check_text


@dataclass(frozen=True, slots=True)
class Acting:
    """Whom a token acts for; None where a server asks for no token."""

    actor: str | None

    def check(
        self,
        actor: str | None,
        *,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Who acts, unless it was to be somebody else; what else a write says of itself must be text."""
        check_text("actor", actor)
        check_text("message", message)
        check_text("if_commit", if_commit)
        check_text("idempotency_key", idempotency_key)
        if actor is not None and actor != self.actor:
            raise InvalidInput(
                "the token decides who acts",
                details={"actor": self.actor, "asked_for": actor},
                hint="connect with the token of that actor",
            )
        return self.actor


def refuse_spark(engine: Engine, spark: Any = None) -> None:
    """`InvalidInput` for work that is to be done on Spark: its tasks would have to reach the storage."""
    check_engine(engine)
    if engine == "spark" or spark is not None:
        raise InvalidInput(
            "Spark reads and writes the storage of a graph itself, which a server does not hand out",
            hint="open the graph by the address of its storage, or leave engine and spark out",
        )
