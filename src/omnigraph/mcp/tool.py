"""A tool: its name, its arguments and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.mcp.pages import DEFAULT_ITEMS, MAX_ITEMS

Json: TypeAlias = dict[str, Any]


class Arguments(BaseModel):
    """Base of the arguments of a tool. Unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid")


Limit: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_ITEMS, description="Maximum number of items in this page.")
]
Offset: TypeAlias = Annotated[
    int, Field(ge=0, description="Number of items to skip; from `next_page` of the page before.")
]


class Paged(Arguments):
    """Arguments of a tool that returns a page."""

    limit: Limit = DEFAULT_ITEMS
    offset: Offset = 0


A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True)
class Tool(Generic[A]):
    """A tool of the server. `writes` tools are hidden in read-only mode.

    `destructive` is the hint that the tool can change or delete existing data, for the client to ask its user.
    """

    name: str
    description: str
    arguments: type[A]
    run: Callable[[Graph, A], Json]
    writes: bool = False
    destructive: bool = False

    def input_schema(self) -> Json:
        """Return the JSON Schema of the arguments."""
        return self.arguments.model_json_schema()

    def call(self, graph: Graph, arguments: Mapping[str, Any]) -> Json:
        """Check the arguments and run the tool. Raises `InvalidInput` for invalid arguments."""
        return self.run(graph, _parse(self.name, self.arguments, arguments))


def _parse(tool: str, model: type[A], arguments: Mapping[str, Any]) -> A:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = [
            f"`{'.'.join(map(str, item['loc']))}`: {item['msg']}" if item["loc"] else item["msg"]
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidInput(
            f"invalid arguments of the tool `{tool}`: {'; '.join(problems)}", details={"tool": tool}
        ) from error
