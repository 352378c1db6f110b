"""The exact encoding of results and errors, in JSON and Arrow, between the server and the Python client.

`responses.py` has the public JSON shapes, which contain less. This encoding is lossless:
``decode(type(x), encode(x)) == x``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from omnigraph import errors
from omnigraph.catalog.serialization import decode_column_type, encode_column_type
from omnigraph.errors import (
    ConstraintViolation,
    ErrorLocation,
    InvalidInput,
    MergeConflicts,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.lang.diagnostics import Diagnostic, LanguageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from omnigraph.api.results.result import Result
    from omnigraph.graph.snapshot import Snapshot

T = TypeVar("T")

EXACT: Final = "application/vnd.omnigraph+json"
ARROW: Final = "application/vnd.apache.arrow.stream"
NDJSON: Final = "application/x-ndjson"
# Headers: the expected head of a conditional write, and the snapshot that a Blob value was read from.
IF_COMMIT: Final = "Omnigraph-If-Graph-Commit"
SNAPSHOT_ID: Final = "Omnigraph-Snapshot-Id"
# Header of a permissive load that stored values as null or dropped fields: ``nulled=2, dropped=1``.
LOAD_WARNINGS: Final = "Omnigraph-Load-Warnings"
# The last line of a stream. Without it a client behind some proxies could not detect a truncated stream.
END: Final = b'{"end":true}\n'

_METADATA_KEY = b"omnigraph"
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
_ERROR_CLASSES = {
    item.code: item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, OmnigraphError)
}


# --- objects ----------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """Return a dataclass of the API, or a list of them, as JSON data.

    >>> from omnigraph.api.interface.branches import Branch
    >>> encode([Branch("main", "01J")])
    [{'name': 'main', 'commit_id': '01J'}]
    """
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return _adapter(type(value)).dump_python(value, mode="json", warnings=False)


def dump_json(value: Any) -> bytes:
    """Return a dataclass of the API as JSON text. Five times as fast as `encode` with `json.dumps`.

    >>> from omnigraph.api.interface.branches import Branch
    >>> dump_json(Branch("main", "01J"))
    b'{"name":"main","commit_id":"01J"}'
    """
    return _adapter(type(value)).dump_json(value, warnings=False)


def decode(kind: type[T], document: Any) -> T:
    """Return the object of encoded JSON data; `StorageError` if the data has another shape.

    >>> from omnigraph.api.interface.branches import Branch
    >>> decode(Branch, {"name": "main", "commit_id": "01J"})
    Branch(name='main', commit_id='01J')
    """
    try:
        value: T = _adapter(kind).validate_python(document)
    except ValueError as error:
        raise StorageError(
            f"the server's response is not a valid {kind.__name__}",
            hint="check that the address is that of an OmniGraph server of the same version",
        ) from error
    return value


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        from pydantic import TypeAdapter

        adapter = TypeAdapter(kind)
        if not adapter.pydantic_complete:
            # The module of the report imports this class only for type checking.
            from omnigraph.maintain.optimize import TypeOptimization

            adapter.rebuild(_types_namespace={"TypeOptimization": TypeOptimization})
        _ADAPTERS[kind] = adapter
    return adapter


def to_json_value(value: Any) -> Any:
    """Return the JSON form of a Python value that is a query parameter; `InvalidInput` if it has none.

    >>> from datetime import date
    >>> to_json_value({"since": date(2024, 1, 1), "raw": b"x", "v": (1, 2.5)})
    {'since': '2024-01-01', 'raw': 'base64:eA==', 'v': [1, 2.5]}
    """
    match value:
        case None | bool() | int() | str():
            # Includes subclasses such as string enums.
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return f"base64:{base64.b64encode(value).decode('ascii')}"
        case Mapping():
            return {str(key): to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
    if callable(getattr(value, "tolist", None)):
        # numpy scalars and arrays.
        return to_json_value(value.tolist())
    raise InvalidInput(f"a {type(value).__name__} cannot be sent to a server")


# --- errors -----------------------------------------------------------------------------------------------


def encode_error(error: OmnigraphError) -> dict[str, Any]:
    """Return an error as JSON data."""
    document: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "reason": error.reason,
        "location": None if error.location is None else encode(error.location),
        "details": _jsonable(error.details),
        "hint": error.hint,
    }
    match error:
        case LanguageError():
            document["diagnostics"] = encode(error.diagnostics)
        case ConstraintViolation() | InvalidInput(violations=[_, *_]):
            document["violations"] = _jsonable(error.violations)
        case MergeConflicts():
            document["conflicts"] = _jsonable(error.conflicts)
        case StorageError():
            document["transient"] = error.transient
    return document


def decode_error(document: Any) -> OmnigraphError:
    """Return the error of encoded JSON data. Raises `StorageError` if the data is not an encoded error.

    >>> decode_error(encode_error(errors.NotFound("branch 'x' not found", details={"branch": "x"})))
    NotFound("branch 'x' not found")
    """
    encoded = decode(_EncodedError, document)
    if encoded.diagnostics:
        return LanguageError(encoded.diagnostics)
    kind = _ERROR_CLASSES.get(encoded.code, OmnigraphError)
    reason = encoded.message if encoded.reason is None else encoded.reason
    common: dict[str, Any] = {
        "details": encoded.details,
        "hint": encoded.hint,
        "location": encoded.location,
    }
    if kind is ConstraintViolation:
        return ConstraintViolation(reason, encoded.violations, **common)
    if kind is MergeConflicts:
        return MergeConflicts(reason, encoded.conflicts, **common)
    if kind is StorageError:
        cause = encoded.details.get("kind")
        known = cause if cause in get_args(StorageErrorKind) else None
        return StorageError(reason, kind=known, transient=encoded.transient, **common)
    error = kind(reason, **common)
    if isinstance(error, InvalidInput) and encoded.violations:
        error.violations = encoded.violations
    return error


@dataclass(frozen=True, slots=True)
class _EncodedError:
    """Members of an encoded error. Each of the last four belongs to one class."""

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


def _jsonable(details: Any) -> Any:
    """Return details as JSON data. Values without a JSON form become strings, so that encoding never fails."""
    return json.loads(json.dumps(details, default=str))


# --- rows -------------------------------------------------------------------------------------------------


def write_result(result: Result) -> bytes:
    """Return a result as an Arrow IPC stream, with everything besides the rows in the metadata of the schema."""
    import pyarrow as pa

    header = {
        "commit_id": result.commit_id,
        "query_name": result.query_name,
        "branch": result.branch,
        "snapshot": result.snapshot,
        "types": [encode_column_type(item) for item in result.types],
    }
    schema = result.table.schema
    metadata = {**(schema.metadata or {}), _METADATA_KEY: json.dumps(header).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata)) as stream:
        stream.write_table(result.table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_result(data: bytes) -> Result:
    """Return the result of an Arrow IPC stream that `write_result` has written."""
    import pyarrow as pa

    from omnigraph.api.results.result import Result

    with pa.ipc.open_stream(data) as stream:
        schema, batches = stream.schema, list(stream)
    metadata = dict(schema.metadata)
    header = json.loads(metadata.pop(_METADATA_KEY))
    return Result(
        pa.Table.from_batches(batches, schema.with_metadata(metadata or None)),
        header["commit_id"],
        header["query_name"],
        branch=header["branch"],
        snapshot=header["snapshot"],
        types=tuple(decode_column_type(item) for item in header["types"]),
    )


# --- snapshots --------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON data, without rows."""
    return {
        "branch": snapshot.branch,
        "commit": snapshot.commit.to_body(),
        "catalog": snapshot.catalog.to_json(),
        "format_version": snapshot.format_version,
    }


def decode_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot of encoded JSON data. Its rows can be read only by queries."""
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.store.manifest.records import CommitRecord
    from omnigraph.store.tables.remote_tables import RemoteTables

    return Snapshot(
        document["branch"],
        CommitRecord.from_body(document["commit"]),
        Catalog.from_json(document["catalog"]),
        RemoteTables(),
        document["format_version"],
    )
