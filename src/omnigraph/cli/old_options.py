"""Options and arguments of older versions, with what replaces them."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.cli.settings.servers import is_url
from omnigraph.errors import InvalidInput

_QUERIES = frozenset({"query", "read", "mutate", "change", "explain"})
_WITH_CONFIG = frozenset({"cluster", "pipeline"})
_GRAPH_SUFFIX = ".omni"


def refuse_old_options(words: Sequence[str]) -> None:
    """Raise `InvalidInput` for an option or an argument of an older version. The hint has what replaces it.

    >>> refuse_old_options(["query", "--name", "all", "--query", "people.gq"])
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: `query` has no option --name
    hint: the name is an argument: `omnigraph query NAME --query FILE`
    """
    place = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    if place == len(words):
        return
    command, rest = words[place], words[place + 1 :]
    given = (
        [word.partition("=")[0] for word in rest[: rest.index("--")] if word]
        if "--" in rest
        else [word.partition("=")[0] for word in rest]
    )
    hints = {
        "--alias": "run an alias of your settings with `omnigraph alias NAME`",
        "--name": f"the name is an argument: `omnigraph {command} NAME --query FILE`",
    }
    for option, hint in hints.items():
        if command in _QUERIES and option in given:
            raise InvalidInput(f"`{command}` has no option {option}", hint=hint)
    if "--config" in given and command not in _WITH_CONFIG:
        hint = (
            "pass the configuration as the argument: `omnigraph serve CONFIG`"
            if command == "serve"
            else "settings are read from ~/.omnigraph/config.yaml; $OMNIGRAPH_HOME names another folder"
        )
        raise InvalidInput(f"`{command}` has no option --config", hint=hint)
    first = rest[0] if rest else ""
    if command in _QUERIES and not first.startswith("-") and _is_address(first):
        option = "--server" if is_url(first) else "--store"
        raise InvalidInput(
            f"`{command}` takes the name of a query as its argument, got the address of a graph",
            hint=f"pass the graph with {option} {first}",
        )


def _is_address(word: str) -> bool:
    return "://" in word or word.rstrip("/").endswith(_GRAPH_SUFFIX)
