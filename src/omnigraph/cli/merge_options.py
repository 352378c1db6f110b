"""Options of `branch merge` and `revert`: dry run, message, precondition, and how conflicts are resolved."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.source_files import read_source, source_name
from omnigraph.errors import ErrorLocation, InvalidInput, NotFound

if TYPE_CHECKING:
    from omnigraph.api.results.merges import Resolve

SIDES = ("ours", "theirs")

_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"

ResolveOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--resolve",
        metavar="ours|theirs|FILE",
        help="Resolve conflicts: all to one side, or each by its id, from a YAML or JSON file.",
    ),
]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the changes, or the conflicts; commit nothing.")
]
IfCommitOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--if-commit", metavar="ID", help="Write only if the branch is at this commit."),
]


def read_resolve(text: str | None) -> Resolve:
    """Parse the value of ``--resolve``: one side for all conflicts, or a file of resolutions by conflict id.

    Raises `NotFound` or `InvalidInput` if the file cannot be read or holds an invalid resolution.
    """
    from omnigraph.merge.resolutions import Resolutions

    if text is None or text in SIDES:
        return text
    try:
        source = read_source(text)
    except NotFound as error:
        hint = error.hint or "pass ours, theirs, or a file of resolutions"
        raise NotFound(error.message, hint=hint, details=error.details) from error
    resolutions = _parse_resolutions(source, source_name(text))
    try:
        Resolutions.of(resolutions)
    except InvalidInput as error:
        raise InvalidInput(f"{source_name(text)}: {error.message}", hint=error.hint) from error
    return resolutions


def _parse_resolutions(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON or YAML mapping. Ids stay strings, even if YAML would read them as numbers; so do dates."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repeated = next(key for key, _ in pairs if sum(other == key for other, _ in pairs) > 1)
            raise InvalidInput(f"duplicate key {repeated}", location=ErrorLocation(source=name))
        return members

    try:
        document = json_text.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError):
        return distinct(_read_pairs(text, name))
    if not isinstance(document, dict):
        raise _not_a_mapping(name)
    return document


def _read_pairs(text: str, name: str) -> list[tuple[str, Any]]:
    import yaml

    class Reader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - overrides a class attribute of PyYAML
            first: [item for item in found if item[0] != _TIMESTAMP_TAG]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    reader = Reader(text)
    try:
        node = reader.get_single_node()
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        if not pairs or not all(isinstance(key, yaml.ScalarNode) for key, _ in pairs):
            raise _not_a_mapping(name)
        return [(key.value, reader.construct_object(value, deep=True)) for key, value in pairs]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        location = ErrorLocation(source=name, line=None if mark is None else mark.line + 1)
        raise InvalidInput(getattr(error, "problem", None) or str(error), location=location) from error
    finally:
        reader.dispose()


def _not_a_mapping(name: str) -> InvalidInput:
    return InvalidInput(
        "expected a mapping of conflict ids to resolutions",
        hint="write lines such as `3f9ac2d41b7e8056: ours`",
        location=ErrorLocation(source=name),
    )
