"""What may stand at the cursor: the candidates for completion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from omnigraph.cli.shell.dot_commands import COMMANDS
from omnigraph.cli.shell.session import FORMATS
from omnigraph.cli.shell.vocabulary import Vocabulary

KEYWORDS = (
    *(
        "match",
        "return",
        "order",
        "limit",
        "skip",
        "optional",
        "not",
        "and",
        "or",
        "distinct",
        "as",
        "asc",
        "desc",
    ),
    *("contains", "starts_with", "in", "is", "null", "insert", "update", "delete", "set", "where", "query"),
    *("true", "false"),
)
FUNCTIONS = (
    *(
        "count",
        "collect",
        "sum",
        "avg",
        "min",
        "max",
        "now",
        "date",
        "datetime",
        "search",
        "match_text",
        "fuzzy",
    ),
    *("nearest", "cosine", "dot", "l2", "bm25", "rrf", "fuse", "snippet"),
)
_WORD = re.compile(r"[\w.@~^{}/-]*\Z")
_NAME = re.compile(r"\w*\Z")
_VARIABLE = re.compile(r"\$(\w*)\Z")
_PROPERTY = re.compile(r"\$(\w+)\.(\w*)\Z")
_TYPE = re.compile(r"\$\w+\s*:\s*(\w*)\Z")
_BOUND_EDGE = re.compile(r"\$\w+\s+\$\w+\s*:\s*<?(\w*)\Z")
_STATEMENT_TYPE = re.compile(r"\b(?:insert|update|delete)\s+(\w*)\Z")
_EDGE = re.compile(r"\$\w+\s+<?(\w*)\Z")
_INLINE = re.compile(r"\$\w+\s*:\s*(\w+)\s*\{(?:[^{}]*,)?\s*(\w*)\Z")
_ASSIGNED = re.compile(r"\b(?:insert|update)\s+(\w+)\s+(?:set\s*)?\{(?:[^{}]*[\s,])?(\w*)\Z")
_WHERE = re.compile(r"\b(?:update|delete)\s+(\w+)\b.*\bwhere\b[^{}]*?(\w*)\Z", re.DOTALL)
_BINDING = re.compile(r"\$(\w+)\s*:\s*(\w+)")
_SWITCH = ("on", "off")


@dataclass(frozen=True)
class Candidates:
    """The texts that may replace the last `typed` characters before the cursor."""

    typed: int
    texts: list[str]


def complete(before: str, names: Vocabulary) -> Candidates:
    """Return what can complete the text before the cursor, in the order in which it is offered."""
    if before.startswith("."):
        return _complete_command(before, names)
    typed, texts = _complete_query(before, names)
    return _matching(typed, texts)


def _complete_command(before: str, names: Vocabulary) -> Candidates:
    name, space, rest = before[1:].partition(" ")
    if not space:
        return _matching(before, [f".{command}" for command in COMMANDS])
    takes = COMMANDS[name].takes if name in COMMANDS else ""
    match takes:
        case "queries" if name == "explain" and rest.strip() not in names.queries() and " " in rest.strip():
            return complete(rest.lstrip(), names)
        case "files":
            return _complete_path(rest)
        case "branches":
            word = _last(rest)
            return _matching(word, [*(["create"] if rest == word else []), *names.branches(word)])
        case "states":
            word = _last(rest)
            return _matching(word, [*(["now"] if name == "at" else []), *names.states(word)])
        case "types":
            return _matching(_last(rest), [*names.node_types(), *names.edge_types()])
        case "queries":
            return _matching(_last(rest), names.queries())
        case "formats":
            return _matching(_last(rest), list(FORMATS))
        case "switch":
            return _matching(_last(rest), list(_SWITCH))
        case "commands":
            return _matching(_last(rest), list(COMMANDS))
    return Candidates(0, [])


def _complete_query(before: str, names: Vocabulary) -> tuple[str, list[str]]:
    """Return the last word, and the names and keywords that can stand there."""
    bound = dict(_BINDING.findall(before))
    if found := _PROPERTY.search(before):
        return found[2], ["*", *names.properties(_type_of(bound.get(found[1]), names))]
    if found := _BOUND_EDGE.search(before):
        return found[1], _edges(names)
    if found := _TYPE.search(before):
        return found[1], names.node_types()
    if found := _VARIABLE.search(before):
        return found[1], list(bound)
    if found := _STATEMENT_TYPE.search(before):
        return found[1], [*names.node_types(), *names.edge_types()]
    if (found := _INLINE.search(before)) or (found := _ASSIGNED.search(before)):
        edges = ["from", "to"] if found[1] in names.edge_types() else []
        return found[2], [*names.properties(found[1]), *edges]
    if found := _WHERE.search(before):
        return found[2], [*names.properties(found[1]), "and", "or", "not", "is", "in", "null"]
    found = _NAME.search(before)
    typed = found[0] if found else ""
    if _EDGE.search(before):
        return typed, [*_edges(names), *KEYWORDS]
    return typed, [*KEYWORDS, *(f"{name}(" for name in FUNCTIONS)]


def _edges(names: Vocabulary) -> list[str]:
    return [name[0].lower() + name[1:] for name in names.edge_types()]


def _type_of(name: str | None, names: Vocabulary) -> str | None:
    """Return the type of a bound name. A query writes an edge with a lower-case first letter."""
    if name is None or name in names.node_types():
        return name
    return next((edge for edge in names.edge_types() if edge.lower() == name.lower()), None)


def _last(text: str) -> str:
    found = _WORD.search(text)
    return found[0] if found else ""


def _matching(typed: str, texts: list[str]) -> Candidates:
    folded = typed.lower()
    found = [text for text in dict.fromkeys(texts) if text.lower().startswith(folded) and text != typed]
    return Candidates(len(typed), found)


def _complete_path(typed: str) -> Candidates:
    path = Path(typed).expanduser()
    folder, start = (path, "") if typed.endswith("/") or not typed else (path.parent, path.name)
    try:
        found = sorted(item for item in folder.iterdir() if item.name.startswith(start))
    except OSError:
        return Candidates(0, [])
    texts = [item.name + ("/" if item.is_dir() else "") for item in found]
    return Candidates(len(start), [text for text in texts if start or not text.startswith(".")])
