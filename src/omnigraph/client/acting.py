"""What a server decides, and not its clients: who acts, and what computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.pipeline.engines import Engine, check_engine


@dataclass(frozen=True, slots=True)
class Acting:
    """Whom a token acts for; None where a server asks for no token."""

    actor: str | None

    def check(self, actor: str | None) -> str | None:
        """Who acts, unless it was to be somebody else."""
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
