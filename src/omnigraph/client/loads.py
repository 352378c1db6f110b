"""Load into a remote graph: send the input in bounded memory, and let the server load it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from omnigraph.api.results.loads import LoadReceipt
from omnigraph.client.request_errors import unexpected_response
from omnigraph.client.server_decisions import refuse_spark
from omnigraph.client.transport import Transport, decoding
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.load.load_request import LoadRequest
from omnigraph.load.reject_log import RejectLog
from omnigraph.load.reject_target import RejectTarget
from omnigraph.protocol.codec import decode, decode_error, decode_snapshot
from omnigraph.protocol.upload_lines import read_lines
from omnigraph.spark.engine.reject_table import append_to_table

if TYPE_CHECKING:
    import httpx

    from omnigraph.client.multipart_body import FormPart
    from omnigraph.store.storage_options import StorageOptions

PATH: Final = "/load/files"


def send_load(
    transport: Transport, request: LoadRequest, options: StorageOptions | None = None
) -> LoadReceipt:
    """Send the input of a load and return its receipt. The errors are those of a local load.

    `options` are storage options for files in an object store. `progress` receives the number of bytes sent so far.
    """
    from omnigraph.client.multipart_body import MultipartForm

    if request.parts:
        raise InvalidInput(
            "a batch needs a graph that is opened by the address of its storage",
            hint="load records with an operation column: one load holds changes of all types",
        )
    if transport.is_public:
        from omnigraph.client.public_loads import send_public_load

        return send_public_load(transport, request, options or {})
    refuse_spark(request.engine, request.spark)
    form = MultipartForm(_parts(transport, request, options or {}), request.progress)
    headers = {"Content-Type": form.content_type}
    with transport.send(
        "POST", PATH, params=_params(request), headers=headers, content=form.chunks()
    ) as response:
        if request.rejects is not None:
            return _read_rejects(response, request, options or {})
        response.read()
        with decoding(response, writes=True, key=request.idempotency_key):
            return decode(LoadReceipt, response.json())


def _params(request: LoadRequest) -> dict[str, Any]:
    flags = {
        "permissive": request.permissive,
        "dry_run": request.dry_run,
        "rejects": request.rejects is not None,
        "require_existing": request.require_existing,
    }
    return {
        "branch": request.branch,
        "from": request.create_from,
        "mode": request.mode,
        "message": request.message,
        "if_commit": request.if_commit,
        "idempotency_key": request.idempotency_key,
        "csv_null": request.csv_null or None,
        "op_column": request.op_column,
        "order_by": request.order_by,
        "index": "later" if request.index_later else None,
        "max_rejects": None if request.max_rejects is None else str(request.max_rejects),
        **{name: "true" for name, is_set in flags.items() if is_set},
    }


def _parts(transport: Transport, request: LoadRequest, options: StorageOptions) -> list[FormPart]:
    from omnigraph.client.load_parts import list_parts

    parts = list_parts(request.source, request.mapping, options)
    if parts is None:
        _raise_source_error(transport, request, options)
    return parts


def _raise_source_error(transport: Transport, request: LoadRequest, options: StorageOptions) -> NoReturn:
    """Raise the error of a source that cannot be loaded, as a local graph does. This needs the schema."""
    from omnigraph.sources.mapping.mapping_reader import read_mapping
    from omnigraph.sources.readers import open_source

    branch = request.create_from or request.branch
    catalog = transport.call("GET", "/snapshot", decode_snapshot, params={"branch": branch}).catalog
    mapping = None if request.mapping is None else read_mapping(request.mapping, catalog, options)
    open_source(request.source, catalog, options=options, mapping=mapping)
    raise InvalidInput(f"cannot load from a value of {type(request.source).__name__}")


def _read_rejects(response: httpx.Response, request: LoadRequest, options: StorageOptions) -> LoadReceipt:
    """Write rejected records and return the receipt, which is the last line.

    The server has finished the load before it responds. If a record cannot be written, the error has a note
    with the outcome of the load.
    """
    assert request.rejects is not None
    with RejectLog() as log:
        target = RejectTarget(request.rejects, log, options, append_to_table(request.spark))
        for line in _lines(response, request.idempotency_key):
            if isinstance(line, LoadReceipt | OmnigraphError):
                return _write_rejects(target, line)
            log.add_line(line)
    raise unexpected_response(response, writes=True, key=request.idempotency_key)


def _lines(
    response: httpx.Response, key: str | None
) -> Iterator[Mapping[str, Any] | LoadReceipt | OmnigraphError]:
    """Yield the rejected records, and last the receipt or the error of the load."""
    with decoding(response, writes=True, key=key):
        for line in read_lines(response.iter_lines()):
            match line:
                case {"receipt": receipt}:
                    yield decode(LoadReceipt, receipt)
                case {"exception": error}:
                    yield decode_error(error)
                case {"error": _, "record": _}:
                    yield line


def _write_rejects(target: RejectTarget, outcome: LoadReceipt | OmnigraphError) -> LoadReceipt:
    """Write rejected records, and return the receipt of the load or raise its error."""
    commit = outcome.commit if isinstance(outcome, LoadReceipt) else None
    if commit is not None:
        target.begin(commit.id)
    try:
        target.write()
        target.deliver()
    except Exception as error:
        done = "nothing" if commit is None else f"the load: commit {commit.id}"
        error.add_note(f"the server has committed {done}")
        raise
    if isinstance(outcome, OmnigraphError):
        raise outcome
    return replace(outcome, rejects=target.location)
