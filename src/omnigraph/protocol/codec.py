"""What calls give and raise, in JSON and Arrow that a client reads back to the very same objects.

`bodies.py` has the shapes that are for everybody; these are between a server and `omnigraph.connect`, and lose
nothing: ``decode(type(x), encode(x)) == x``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from omnigraph import errors
from omnigraph.catalog.serialization import decode_type, encode_type
from omnigraph.errors import (
    ConstraintViolation,
    ErrorLocation,
    InvalidInput,
    MergeConflicts,
    OmnigraphError,
    StorageError,
)
from omnigraph.lang.diagnostics import Diagnostic, LanguageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from omnigraph.api.result import Result
    from omnigraph.graph.snapshot import Snapshot

T = TypeVar("T")

EXACT: Final = "application/vnd.omnigraph+json"
ARROW: Final = "application/vnd.apache.arrow.stream"
NDJSON: Final = "application/x-ndjson"
# The commit that a conditional write names, and the state that a single value was read from.
IF_COMMIT: Final = "Omnigraph-If-Graph-Commit"
SNAPSHOT_ID: Final = "Omnigraph-Snapshot-Id"
# The last line of a stream: behind some proxies one that broke off looks like one that ended.
END: Final = b'{"end":true}\n'

_ABOUT = b"omnigraph"
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
_KINDS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OmnigraphError)
}


# --- objects ----------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """A dataclass of the API, or a list of them, as JSON.

    >>> from omnigraph.api.branches import Branch
    >>> encode([Branch("main", "01J")])
    [{'name': 'main', 'commit_id': '01J'}]
    """
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return _adapter(type(value)).dump_python(value, mode="json", warnings=False)


def dump_json(value: Any) -> bytes:
    """A dataclass of the API as the text of that JSON, which takes a fifth of the time.

    >>> from omnigraph.api.branches import Branch
    >>> dump_json(Branch("main", "01J"))
    b'{"name":"main","commit_id":"01J"}'
    """
    return _adapter(type(value)).dump_json(value, warnings=False)


def decode(kind: type[T], found: Any) -> T:
    """The object that was encoded; `StorageError` when it is something else, which a server of ours never sends.

    >>> from omnigraph.api.branches import Branch
    >>> decode(Branch, {"name": "main", "commit_id": "01J"})
    Branch(name='main', commit_id='01J')
    """
    try:
        value: T = _adapter(kind).validate_python(found)
    except ValueError as error:
        raise StorageError(
            f"the server's answer is not a {kind.__name__}",
            hint="is the address that of an OmniGraph server of this version?",
        ) from error
    return value


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    found = _ADAPTERS.get(kind)
    if found is None:
        from pydantic import TypeAdapter

        found = TypeAdapter(kind)
        if not found.pydantic_complete:
            # The one class of an answer that its module knows only while types are checked.
            from omnigraph.maintain.optimize import TypeOptimization

            found.rebuild(_types_namespace={"TypeOptimization": TypeOptimization})
        _ADAPTERS[kind] = found
    return found


def plain(value: Any) -> Any:
    """A value of Python as the JSON that means the same to a query or a load; else `InvalidInput`.

    >>> from datetime import date
    >>> plain({"since": date(2024, 1, 1), "raw": b"x", "v": (1, 2.5)})
    {'since': '2024-01-01', 'raw': 'base64:eA==', 'v': [1, 2.5]}
    """
    match value:
        case None | bool() | int() | str():
            # Subclasses, of which enums are the common ones, mean what they are made of.
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return f"base64:{base64.b64encode(value).decode('ascii')}"
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    if callable(getattr(value, "tolist", None)):
        # Scalars and arrays of numpy.
        return plain(value.tolist())
    raise InvalidInput(f"a {type(value).__name__} cannot be sent to a server")


# --- errors -----------------------------------------------------------------------------------------------


def encode_error(error: OmnigraphError) -> dict[str, Any]:
    """Everything that an error says, as JSON."""
    found: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "reason": error.reason,
        "location": None if error.location is None else encode(error.location),
        "details": _told(error.details),
        "hint": error.hint,
    }
    match error:
        case LanguageError():
            found["diagnostics"] = encode(error.diagnostics)
        case ConstraintViolation():
            found["violations"] = _told(error.violations)
        case MergeConflicts():
            found["conflicts"] = _told(error.conflicts)
        case StorageError():
            found["transient"] = error.transient
    return found


def decode_error(found: Any) -> OmnigraphError:
    """The error of the same class that says the same; `StorageError` is raised when it is none that was encoded.

    >>> decode_error(encode_error(errors.NotFound("no branch `x`", hint="make it", details={"branch": "x"})))
    NotFound('no branch `x`')
    """
    told = decode(_Told, found)
    if told.diagnostics:
        return LanguageError(told.diagnostics)
    kind = _KINDS.get(told.code, OmnigraphError)
    reason = told.message if told.reason is None else told.reason
    said: dict[str, Any] = {"details": told.details, "hint": told.hint, "location": told.location}
    if kind is ConstraintViolation:
        return ConstraintViolation(reason, told.violations, **said)
    if kind is MergeConflicts:
        return MergeConflicts(reason, told.conflicts, **said)
    if kind is StorageError:
        return StorageError(reason, transient=told.transient, **said)
    return kind(reason, **said)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an error says; of the last four each has its own class."""

    code: str
    message: str
    details: dict[str, Any]
    hint: str | None
    reason: str | None = None
    location: ErrorLocation | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    violations: tuple[dict[str, Any], ...] = ()
    conflicts: tuple[dict[str, Any], ...] = ()
    transient: bool = False


def _told(details: Any) -> Any:
    """Details as JSON; what has no JSON is told as text, because an error must arrive."""
    return json.loads(json.dumps(details, default=str))


# --- rows -------------------------------------------------------------------------------------------------


def write_result(result: Result) -> bytes:
    """A result as an Arrow stream, which any client of Arrow can read; the rest is in the schema's metadata."""
    import pyarrow as pa

    about = {
        "commit_id": result.commit_id,
        "query_name": result.query_name,
        "branch": result.branch,
        "snapshot": result.snapshot,
        "types": [encode_type(item) for item in result.types],
    }
    schema = result.table.schema
    metadata = {**(schema.metadata or {}), _ABOUT: json.dumps(about).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata)) as stream:
        stream.write_table(result.table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def read_result(data: bytes) -> Result:
    """The result that was written."""
    import pyarrow as pa

    from omnigraph.api.result import Result

    with pa.ipc.open_stream(data) as stream:
        schema, batches = stream.schema, list(stream)
    metadata = dict(schema.metadata)
    about = json.loads(metadata.pop(_ABOUT))
    return Result(
        pa.Table.from_batches(batches, schema.with_metadata(metadata or None)),
        about["commit_id"],
        about["query_name"],
        branch=about["branch"],
        snapshot=about["snapshot"],
        types=tuple(decode_type(item) for item in about["types"]),
    )


# --- states -----------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """What a state is made of, without its rows."""
    return {
        "branch": snapshot.branch,
        "commit": snapshot.commit.to_body(),
        "catalog": snapshot.catalog.to_json(),
    }


def decode_snapshot(found: Mapping[str, Any]) -> Snapshot:
    """The state, to be named in other calls and looked at; its rows are read by queries."""
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.store.manifest.records import CommitRecord
    from omnigraph.store.tables.remote_tables import RemoteTables

    return Snapshot(
        found["branch"],
        CommitRecord.from_body(found["commit"]),
        Catalog.from_json(found["catalog"]),
        RemoteTables(),
    )
