"""Options of the data source that reads and writes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.load.load_request import check_operations, is_index_later
from omnigraph.load.sink_options import SinkOptions
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.load_mode import LOAD_MODES, LoadMode
from omnigraph.store.location import Location

STORAGE_PREFIX: Final = "storage."
# The variables of embedding providers, which the data source does not read from the environment.
EMBED_PREFIX: Final = "embed."
# Spark passes the argument of `load` and `save` as `path`.
_GRAPH: Final = ("uri", "path", "type", "branch")
READ_OPTIONS: Final = (*_GRAPH, "commit", "snapshot", "timestamp", "columns", "where", "rowsPerPartition")
_ROWS: Final = ("typeColumn", "opColumn", "orderBy", "requireExisting", "index")
_REJECTS: Final = ("rejects", "maxRejects")
_WRITE: Final = (*_GRAPH, "createFrom", "mode", "message", "actor", "externalBlobs", *_REJECTS, *_ROWS)
WRITE_OPTIONS: Final = (*_WRITE, "ifCommit", "idempotencyKey")
# Spark passes its own last two options on.
STREAM_OPTIONS: Final = (*_WRITE, "checkpointLocation", "queryName")

# Spark passes the options of a table in its catalog when the table is created, and none when it is read.
_CATALOG_TABLE: Final = (
    "Spark passes no options of a table to its source; use CREATE TEMPORARY VIEW name USING omnigraph "
    "OPTIONS (uri '...', type '...')"
)


def known_options(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Return the options by lower-case name, as Spark does; raise `InvalidInput` for an unknown option.

    >>> known_options({"URI": "g", "storage.region": "x"}, READ_OPTIONS)
    {'uri': 'g', 'storage.region': 'x'}
    """
    values = {name.lower(): value for name, value in options.items()}
    if "provider" in values:
        raise InvalidInput("a table USING omnigraph is not supported", hint=_CATALOG_TABLE)
    names = {name.lower() for name in known}
    for name in values:
        if name not in names and not name.startswith((STORAGE_PREFIX, EMBED_PREFIX)):
            raise InvalidInput(
                f"unknown option '{name}'{did_you_mean(name, sorted(names))}",
                hint=f"the options are {', '.join(known)} and {STORAGE_PREFIX}*",
            )
    return values


def storage_options(values: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options, completed from the `AWS_*` variables of the driver."""
    from omnigraph.store.storage_options import resolve_options

    explicit = {
        name.removeprefix(STORAGE_PREFIX): value
        for name, value in values.items()
        if name.startswith(STORAGE_PREFIX)
    }
    return resolve_options(explicit)


def graph_location(values: Mapping[str, str]) -> Location:
    """Return the location of the graph that the options name."""
    if values.get("path") and values.get("uri"):
        raise InvalidInput(
            "the graph is specified twice, by the option 'uri' and by the argument of load or save"
        )
    location = Location.parse(values.get("path") or required(values, "uri"))
    if location.scheme == "memory":
        raise InvalidInput(
            f"{location} is in the memory of one process, which Spark tasks cannot reach",
            hint="use a path or s3://",
        )
    return location


def required(values: Mapping[str, str], name: str) -> str:
    """Return the value of a required option."""
    if not values.get(name):
        raise InvalidInput(f"the option '{name}' is missing", hint=None if values else _CATALOG_TABLE)
    return values[name]


def positive(values: Mapping[str, str], name: str, default: int) -> int:
    """Return the positive integer value of an option.

    >>> positive({"maxcommits": "7"}, "maxCommits", 128), positive({}, "maxCommits", 128)
    (7, 128)
    """
    text = values.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidInput(f"option '{name}': expected an integer above 0, got '{text}'")
    return int(text)


def write_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """Parse the options of ``df.write``. `overwrite` is true for the Spark mode ``overwrite``."""
    values = known_options(options, WRITE_OPTIONS)
    mode = _mode(values.get("mode", "overwrite" if overwrite else "append"), LOAD_MODES)
    if overwrite != (mode == "overwrite"):
        raise InvalidInput(
            f"option 'mode' is '{mode}', but the Spark mode is {'overwrite' if overwrite else 'append'}",
            hint='to merge, use .option("mode", "merge").mode("append")',
        )
    return _write_options(values, mode)


def stream_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """Parse the options of ``df.writeStream``. `overwrite` is true for the output mode ``complete``."""
    values = known_options(options, STREAM_OPTIONS)
    if overwrite:
        raise InvalidInput(
            "streams do not support the output mode 'complete'",
            hint='use output mode append, or foreachBatch with a write of mode("overwrite")',
        )
    allowed = [mode for mode in LOAD_MODES if mode != "overwrite"]
    return _write_options(values, _mode(values.get("mode", "append"), allowed))


def _mode(name: str, allowed: Sequence[LoadMode]) -> LoadMode:
    for mode in allowed:
        if mode == name:
            return mode
    raise InvalidInput(f"option 'mode': unknown mode '{name}'", hint=f"use one of {', '.join(allowed)}")


def _write_options(values: Mapping[str, str], mode: LoadMode) -> SinkOptions:
    check_operations(mode, values.get("opcolumn"), values.get("orderby"))
    type_column = values.get("typecolumn")
    if type_column is not None and values.get("type"):
        raise InvalidInput("the type is specified twice, by the options 'type' and 'typeColumn'")
    return SinkOptions(
        uri=graph_location(values).uri,
        type=required(values, "type") if type_column is None else None,
        type_column=type_column,
        op_column=values.get("opcolumn"),
        order_by=values.get("orderby"),
        require_existing=_flag(values, "requireExisting"),
        branch=values.get("branch", "main").strip(),
        mode=mode,
        storage=storage_options(values),
        create_from=values.get("createfrom"),
        message=values.get("message"),
        actor=values.get("actor"),
        if_commit=values.get("ifcommit"),
        idempotency_key=values.get("idempotencykey"),
        external_blobs=_external_blobs(values.get("externalblobs", "")),
        embedding=embedding_variables(values),
        rejects=values.get("rejects"),
        max_rejects=values.get("maxrejects"),
        index_later=is_index_later(values.get("index", "now").strip().lower()),
    )


def embedding_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of embedding providers that the options with the prefix ``embed.`` set.

    >>> embedding_variables({"embed.provider": "mock", "embed.openai_api_key": "k", "type": "Doc"})
    {'OMNIGRAPH_EMBED_PROVIDER': 'mock', 'OPENAI_API_KEY': 'k'}
    """
    variables = {}
    for name, value in values.items():
        if name.startswith(EMBED_PREFIX):
            variable = name.removeprefix(EMBED_PREFIX).upper()
            variables[variable if variable.endswith("_API_KEY") else f"OMNIGRAPH_EMBED_{variable}"] = value
    return variables


def _flag(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"option '{name}': expected true or false, got '{text}'")
    return text == "true"


def _external_blobs(text: str) -> ExternalBlobPolicy:
    """Return the policy that allows the bases of a comma-separated list."""
    return ExternalBlobPolicy.of([base.strip() for base in text.split(",") if base.strip()])
