"""Loads of a served graph: what is here is sent as it is, in bounded memory, and the server loads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NoReturn

from omnigraph.api.loads import LoadReceipt, RejectedRecords
from omnigraph.client.request_errors import garbled
from omnigraph.client.server_decisions import refuse_spark
from omnigraph.client.transport import Transport, understanding
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.load.load_request import LoadRequest
from omnigraph.protocol.codec import decode, decode_error, decode_snapshot
from omnigraph.protocol.upload_lines import read_lines

if TYPE_CHECKING:
    import httpx

    from omnigraph.client.multipart_body import Part
    from omnigraph.store.storage_options import StorageOptions

PATH: Final = "/load/files"


def send_load(
    transport: Transport, request: LoadRequest, options: StorageOptions | None = None
) -> LoadReceipt:
    """Send what is to be loaded and have it loaded; the receipt and the refusals are those of `run_load`.

    `options` are how to reach files that are in a store. `progress` is told how many bytes have been sent so far.
    """
    from omnigraph.client.multipart_body import Form

    refuse_spark(request.engine, request.spark)
    form = Form(_parts(transport, request, options or {}), request.progress)
    headers = {"Content-Type": form.content_type}
    with transport.send(
        "POST", PATH, params=_params(request), headers=headers, content=form.chunks()
    ) as response:
        if request.rejects is not None:
            return _receipt_after_rejects(response, request)
        response.read()
        with understanding(response, writes=True, key=request.idempotency_key):
            return decode(LoadReceipt, response.json())


def _params(request: LoadRequest) -> dict[str, Any]:
    flags = {
        "permissive": request.permissive,
        "dry_run": request.dry_run,
        "rejects": request.rejects is not None,
    }
    return {
        "branch": request.branch,
        "from": request.create_from,
        "mode": request.mode,
        "message": request.message,
        "if_commit": request.if_commit,
        "idempotency_key": request.idempotency_key,
        **{name: "true" for name, given in flags.items() if given},
    }


def _parts(transport: Transport, request: LoadRequest, options: StorageOptions) -> list[Part]:
    from omnigraph.client.load_parts import list_parts

    found = list_parts(request.source, request.mapping, options)
    if found is None:
        _explain(transport, request, options)
    return found


def _explain(transport: Transport, request: LoadRequest, options: StorageOptions) -> NoReturn:
    """Say what is wrong with a source, as it would be said where the graph is: that takes the schema."""
    from omnigraph.sources.mapping.mapping_reader import read_mapping
    from omnigraph.sources.readers import open_source

    branch = request.create_from or request.branch
    catalog = transport.call("GET", "/snapshot", decode_snapshot, params={"branch": branch}).catalog
    mapping = None if request.mapping is None else read_mapping(request.mapping, catalog, options)
    open_source(request.source, catalog, options=options, mapping=mapping)
    raise InvalidInput(f"cannot load from {type(request.source).__name__}")


def _receipt_after_rejects(response: httpx.Response, request: LoadRequest) -> LoadReceipt:
    """Pass rejected records on as they come; the last line is what became of the load.

    The server has done the load by now: when a record cannot be passed on, that is raised with what it did.
    """
    assert request.rejects is not None
    with ExitStack() as opened:
        rejected = RejectedRecords(request.rejects, opened)
        lines = _lines(response, request.idempotency_key)
        for told in lines:
            if isinstance(told, LoadReceipt):
                return told
            if isinstance(told, OmnigraphError):
                raise told
            try:
                rejected.add_line(told)
            except Exception as error:
                error.add_note(_outcome(lines))
                raise
    raise garbled(response, writes=True, key=request.idempotency_key)


def _lines(
    response: httpx.Response, key: str | None
) -> Iterator[Mapping[str, Any] | LoadReceipt | OmnigraphError]:
    """Rejected records, and then what became of the load."""
    with understanding(response, writes=True, key=key):
        for told in read_lines(response.iter_lines()):
            match told:
                case {"receipt": receipt}:
                    yield decode(LoadReceipt, receipt)
                case {"exception": error}:
                    yield decode_error(error)
                case {"error": _, "record": _}:
                    yield told


def _outcome(lines: Iterable[object]) -> str:
    last = deque(lines, maxlen=1)
    if not (last and isinstance(last[0], LoadReceipt)):
        return "the server has loaded nothing"
    commit = last[0].commit
    return "the server has " + ("loaded nothing" if commit is None else f"done the load: commit {commit.id}")
