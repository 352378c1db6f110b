"""The options of the data source: what they are called, and what reading and writing have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.load.sink_options import SinkOptions
from omnigraph.rules.load_mode import LoadMode
from omnigraph.store.location import Location

STORAGE_PREFIX: Final = "storage."
# Spark's own name for the argument of `load` and `save` is `path`.
_GRAPH: Final = ("uri", "path", "type", "branch")
READ_OPTIONS: Final = (*_GRAPH, "commit", "snapshot", "timestamp", "columns", "where", "rowsPerPartition")
_WRITE: Final = (*_GRAPH, "createFrom", "mode", "message", "actor")
WRITE_OPTIONS: Final = (*_WRITE, "ifCommit", "idempotencyKey")
# The last two are Spark's own, which it hands on.
STREAM_OPTIONS: Final = (*_WRITE, "checkpointLocation", "queryName")


def known_options(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """The options by name in lower case, as Spark has them; one of another name is an error.

    >>> known_options({"URI": "g", "storage.region": "x"}, READ_OPTIONS)
    {'uri': 'g', 'storage.region': 'x'}
    """
    given = {name.lower(): value for name, value in options.items()}
    names = {name.lower() for name in known}
    for name in given:
        if name not in names and not name.startswith(STORAGE_PREFIX):
            raise InvalidInput(
                f"unknown option '{name}'{did_you_mean(name, sorted(names))}",
                hint=f"the options are {', '.join(known)} and {STORAGE_PREFIX}*",
            )
    return given


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """What storage needs to know."""
    return {
        name.removeprefix(STORAGE_PREFIX): value
        for name, value in given.items()
        if name.startswith(STORAGE_PREFIX)
    }


def graph_location(given: Mapping[str, str]) -> Location:
    """Where the graph is that the options name."""
    if given.get("path") and given.get("uri"):
        raise InvalidInput(
            "the graph is named twice, by the option 'uri' and by the argument of load or save"
        )
    location = Location.parse(given.get("path") or required(given, "uri"))
    if location.scheme == "memory":
        raise InvalidInput(
            f"{location} lives in one process, and Spark works in others", hint="use a path or s3://"
        )
    return location


def required(given: Mapping[str, str], name: str) -> str:
    """The value of an option that must be there."""
    if not given.get(name):
        raise InvalidInput(f"the option '{name}' is missing")
    return given[name]


def positive(given: Mapping[str, str], name: str, default: int) -> int:
    """The number above zero that an option says.

    >>> positive({"maxcommits": "7"}, "maxCommits", 128), positive({}, "maxCommits", 128)
    (7, 128)
    """
    text = given.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidInput(f"option '{name}' is '{text}', not a number above zero")
    return int(text)


def write_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """What the options of ``df.write`` mean; `overwrite` is what its ``mode`` says."""
    given = known_options(options, WRITE_OPTIONS)
    mode = _mode(given.get("mode", "overwrite" if overwrite else "append"), ("append", "merge", "overwrite"))
    if overwrite != (mode == "overwrite"):
        raise InvalidInput(
            f"the option 'mode' is '{mode}', and Spark's own mode is {'overwrite' if overwrite else 'append'}",
            hint='to merge, use .option("mode", "merge").mode("append")',
        )
    return _write_options(given, mode)


def stream_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """What the options of ``df.writeStream`` mean; Spark says `overwrite` for the output mode ``complete``."""
    given = known_options(options, STREAM_OPTIONS)
    if overwrite:
        raise InvalidInput(
            "a stream cannot be written in output mode 'complete'",
            hint='use output mode append, or foreachBatch with a write of mode("overwrite")',
        )
    return _write_options(given, _mode(given.get("mode", "append"), ("append", "merge")))


def _mode(name: str, allowed: Sequence[LoadMode]) -> LoadMode:
    for mode in allowed:
        if mode == name:
            return mode
    raise InvalidInput(f"the option 'mode' is '{name}'", hint=f"it is one of {', '.join(allowed)}")


def _write_options(given: Mapping[str, str], mode: LoadMode) -> SinkOptions:
    return SinkOptions(
        uri=graph_location(given).uri,
        type=required(given, "type"),
        branch=given.get("branch", "main").strip(),
        mode=mode,
        storage=storage_options(given),
        create_from=given.get("createfrom"),
        message=given.get("message"),
        actor=given.get("actor"),
        if_commit=given.get("ifcommit"),
        idempotency_key=given.get("idempotencykey"),
    )
