"""Loads of records into a graph on a server of the public contract."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.client.load_parts import read_file
from omnigraph.client.public_contract import translate_load
from omnigraph.client.server_decisions import refuse_spark
from omnigraph.client.transport import Transport, decoding
from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import NDJSON, decode, to_json_value
from omnigraph.sources.readers import list_records

if TYPE_CHECKING:
    from omnigraph.api.results.loads import LoadReceipt
    from omnigraph.load.load_request import LoadRequest
    from omnigraph.store.storage_options import StorageOptions

# Arguments of a load that the contract does not have.
_UNSUPPORTED = (
    "rejects",
    "max_rejects",
    "permissive",
    "message",
    "if_commit",
    "idempotency_key",
    "dry_run",
    "mapping",
    "op_column",
    "order_by",
    "require_existing",
)


def send_public_load(transport: Transport, request: LoadRequest, options: StorageOptions) -> LoadReceipt:
    """Send graph records as lines of JSON, and return the receipt. `InvalidInput` for any other source."""
    from omnigraph.api.results.loads import LoadReceipt

    refuse_spark(request.engine, request.spark)
    for name in _UNSUPPORTED:
        if getattr(request, name):
            raise InvalidInput(
                f"the server does not support `{name}`: it implements only the public contract"
            )
    if request.index_later:
        raise InvalidInput("the server does not support `index`: it implements only the public contract")
    if request.mode in ("patch", "delete"):
        raise InvalidInput(
            f"the server does not support mode '{request.mode}': it implements only the public contract",
            hint="use a mutation query",
        )
    params = {"branch": request.branch, "from": request.create_from, "mode": request.mode}
    headers = {"Content-Type": NDJSON, "Accept": "application/json"}
    content = _lines(request.source, options)
    with transport.send("POST", "/load/ndjson", params=params, headers=headers, content=content) as response:
        response.read()
        with decoding(response, writes=True, key=None):
            return decode(LoadReceipt, translate_load(response.json()))


def _lines(source: Any, options: StorageOptions) -> Iterator[bytes]:
    if isinstance(source, str | Path):
        files = list_records(source, options)
        return (chunk for file in files for chunk in read_file(file))
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        return (_line(record) for record in source)
    raise InvalidInput(
        f"cannot load a {type(source).__name__}: the server implements only the public contract",
        hint="pass graph records: a file of JSON lines, or an iterable of dicts",
    )


def _line(record: Any) -> bytes:
    if not isinstance(record, Mapping):
        raise InvalidInput(f"a graph record must be a dict, got {type(record).__name__}")
    return json.dumps(to_json_value(record), ensure_ascii=False).encode() + b"\n"
