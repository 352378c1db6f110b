"""What merges and reverts share: their options, how conflicts are shown, how they are settled, what was done."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.precondition import told_precondition
from omnigraph.cli.render.output import complain, count, note, readable, say, say_json
from omnigraph.cli.render.row_formats import cell, table_lines
from omnigraph.cli.shell import FAILURE
from omnigraph.cli.source_files import read_source, source_name
from omnigraph.errors import InvalidInput, MergeConflicts, NotFound

if TYPE_CHECKING:
    from omnigraph.api.merges import Merged, Resolve

SIDES = ("ours", "theirs")
COLUMNS = ("id", "kind", "entity", "property", "base", "ours", "theirs")
SHOWN = 20
SHOWN_ANSWERS = 3
VALUE_WIDTH = 24

# Two values of a property; the table says everything about them, and a third can settle them.
_OF_A_VALUE = frozenset({"divergent_insert", "divergent_update"})
_ABSENT = "<absent>"
_TIME = "tag:yaml.org,2002:timestamp"

ResolveOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--resolve",
        metavar="ours|theirs|FILE",
        help="Settle conflicts: all for one side, or each by its id as a YAML or JSON file says.",
    ),
]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Tell what would be done, or the conflicts; commit nothing.")
]
MessageOption: TypeAlias = Annotated[
    str | None, typer.Option("--message", metavar="TEXT", help="Recorded with the commit.")
]
IfCommitOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--if-commit", metavar="ID", help="Only if the branch still stands at this commit."),
]


@dataclass(frozen=True)
class SideNames:
    """What the two sides of a conflict are, in words."""

    ours: str
    theirs: str


@contextmanager
def told_refusals(sides: SideNames, *, json: bool) -> Iterator[None]:
    """Conflicts and a lost precondition end the command as one readable block, or as JSON on stdout."""
    try:
        with told_precondition(json=json):
            yield
    except MergeConflicts as error:
        if json:
            listed = list(error.conflicts)
            say_json({"error": error.message, "code": "conflict", "merge_conflicts": listed})
        else:
            # Without its hint: what to do is said below, with the ids.
            complain(MergeConflicts(readable(error.message)))
            total = error.details.get("conflicts", len(error.conflicts))
            for line in conflict_lines(error.conflicts, total, sides):
                note(line)
            for id_ in error.details.get("unknown_conflicts", ()):
                note(f"{id_} is none of them")
        raise typer.Exit(FAILURE) from error


def describe_merged(merged: Merged) -> dict[str, Any]:
    """What a merge or a revert did, or would do, as JSON."""
    from omnigraph.protocol.result_bodies import commit_body

    return {
        "commit": None if merged.commit is None else commit_body(merged.commit),
        "affected": {name: dict(counts) for name, counts in merged.affected.items()},
        "taken": list(merged.taken),
        "conflicts": [dict(item) for item in merged.conflicts],
        "dry_run": merged.dry_run,
    }


def say_preview(would: str, merged: Merged, sides: SideNames) -> None:
    """Print what a dry run found: what would become of each type, or the conflicts."""
    if merged.conflicts:
        say(f"{would}: {count(len(merged.conflicts), 'conflict')}")
        for line in conflict_lines(merged.conflicts, len(merged.conflicts), sides):
            say(line)
        return
    say(f"{would}: {merged.outcome}")
    for name, counts in merged.affected.items():
        say(f"{name}: {', '.join(f'{number} {what}' for what, number in counts.items() if number)}")
    for name in merged.taken:
        say(f"{name}: taken over")


# --- conflicts ----------------------------------------------------------------------------------------------


def conflict_lines(conflicts: Sequence[Mapping[str, Any]], total: int, sides: SideNames) -> Iterator[str]:
    """A table of conflicts, what it has no room for, and how to settle them."""
    shown = conflicts[:SHOWN]
    yield from table_lines(COLUMNS, map(_cells, shown))
    if total > len(shown):
        yield f"and {total - len(shown)} more"
    for item in shown:
        if item["kind"] not in _OF_A_VALUE and item["kind"] != "delete_vs_update":
            yield f"{item['id']}: {readable(item['message'])}"
    yield f"ours is {sides.ours}, theirs is {sides.theirs}"
    yield "settle them with --resolve ours or --resolve theirs, or one by one with --resolve FILE, such as:"
    for item in conflicts[:SHOWN_ANSWERS]:
        value = ", or {value: ...}" if item["kind"] in _OF_A_VALUE else ""
        yield f"  {item['id']}: ours  # or theirs{value}"
    if total > SHOWN_ANSWERS:
        yield "  '*': theirs  # the rest"


def _cells(conflict: Mapping[str, Any]) -> list[str]:
    named = "" if conflict["entity_id"] is None else f" '{conflict['entity_id']}'"
    entity = f"{conflict['entity_kind']} {conflict['type_name']}{named}"
    values = (_cut(text) for text in _values(conflict))
    return [conflict["id"], conflict["kind"], entity, conflict["property"] or "", *values]


def _values(conflict: Mapping[str, Any]) -> list[str]:
    """What the base and the two sides have, as cells."""
    values = [conflict[side] for side in ("base", *SIDES)]
    match conflict["kind"]:
        case "divergent_update":
            return [cell(value) for value in values]
        case "divergent_insert":
            return [_ABSENT, *(cell(value) for value in values[1:])]
        case "delete_vs_update":
            flat = [None if value is None else _flat(value) for value in values]
            base = flat[0] or {}
            updated = flat[1] or flat[2] or {}
            keys = [key for key, value in updated.items() if key not in base or base[key] != value]
            return [_ABSENT if item is None else cell({key: item.get(key) for key in keys}) for item in flat]
    return [
        "" if value is None else cell(_of_property(_flat(value), conflict["property"])) for value in values
    ]


def _of_property(value: Any, name: str | None) -> Any:
    """What a rule is about, of an entity that breaks it."""
    return value[name] if isinstance(value, Mapping) and name in value else value


def _flat(image: Any) -> Any:
    """The ends and properties of an entity beside one another; anything else as it is."""
    if not isinstance(image, Mapping) or "properties" not in image:
        return image
    return {**image.get("endpoints", {}), **image["properties"]}


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + "…"


# --- resolutions --------------------------------------------------------------------------------------------


def read_resolve(text: str | None) -> Resolve:
    """What ``--resolve`` means: a side for all conflicts, or what a file says about each by its id.

    Raises `NotFound` or `InvalidInput` for a file that cannot be read, or answers that cannot be meant.
    """
    from omnigraph.merge.conflicts import Resolutions

    if text is None or text in SIDES:
        return text
    try:
        source = read_source(text)
    except NotFound as error:
        hint = error.hint or "pass ours, theirs, or a file of resolutions"
        raise NotFound(error.message, hint=hint, details=error.details) from error
    answers = _read_answers(source, source_name(text))
    try:
        Resolutions.of(answers)
    except InvalidInput as error:
        raise InvalidInput(f"{source_name(text)}: {error.message}", hint=error.hint) from error
    return answers


def _read_answers(text: str, name: str) -> dict[str, Any]:
    """A mapping in JSON or YAML. Ids stay texts, also those that YAML would take for numbers; so do dates."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, _ in pairs if sum(other == key for other, _ in pairs) > 1)
            raise InvalidInput(f"{name}: {twice} is there twice")
        return found

    try:
        found = json_text.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError):
        return distinct(_read_pairs(text, name))
    if not isinstance(found, dict):
        raise _no_mapping(name)
    return found


def _read_pairs(text: str, name: str) -> list[tuple[str, Any]]:
    import yaml

    class Reader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - the name and the kind are those of the library
            first: [item for item in found if item[0] != _TIME]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    reader = Reader(text)
    try:
        node = reader.get_single_node()
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        if not pairs or not all(isinstance(key, yaml.ScalarNode) for key, _ in pairs):
            raise _no_mapping(name)
        return [(key.value, reader.construct_object(value, deep=True)) for key, value in pairs]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = name if mark is None else f"{name}, line {mark.line + 1}"
        raise InvalidInput(f"{place}: {getattr(error, 'problem', None) or error}") from error
    finally:
        reader.dispose()


def _no_mapping(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: conflict ids with resolutions expected", hint="write lines such as `3f9ac2d41b7e8056: ours`"
    )
