"""OpenTelemetry traces: a span for each request, query, commit and storage operation, sent by OTLP over HTTP.

Traces are on if an environment variable of OpenTelemetry names an endpoint. They need the extra ``otel``. Its SDK
is not imported otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.errors import InvalidInput
from omnigraph.extras import requires
from omnigraph.server.logs import LOGGER
from omnigraph.store.spans import set_span_factory

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_SERVICE: Final = "OTEL_SERVICE_NAME"
_SCOPE: Final = "omnigraph"
_EXPORT_SECONDS: Final = 10.0


def find_traces_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the URL to which traces are sent, or None if they are off. `InvalidInput` without the extra.

    >>> find_traces_endpoint({}), find_traces_endpoint({"OTEL_SDK_DISABLED": "true"})
    (None, None)
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    base = environment.get(_ENDPOINT, "").strip()
    endpoint = environment.get(_TRACES_ENDPOINT, "").strip() or (base and f"{base.rstrip('/')}/v1/traces")
    if not endpoint:
        return None
    with requires("otel", f"{_ENDPOINT} (OpenTelemetry traces)"):
        import opentelemetry.sdk.trace  # noqa: F401 - only to know that it is installed
    if httpx.URL(endpoint).scheme not in ("http", "https"):
        raise InvalidInput(f"{_ENDPOINT} must be an http(s) URL, got `{endpoint}`")
    return endpoint


@contextmanager
def tracing(endpoint: str | None, environment: Mapping[str, str]) -> Iterator[None]:
    """Record spans in this process while the context is open, and send the last ones at the end."""
    if endpoint is None:
        yield
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": environment.get(_SERVICE) or _SCOPE})
    provider = TracerProvider(resource=resource)
    exporter: Any = OtlpExporter(endpoint, _parse_headers(environment.get(_HEADERS, "")))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer(_SCOPE)

    def start(name: str, attributes: Mapping[str, str | int]) -> AbstractContextManager[Any]:
        return tracer.start_as_current_span(f"omnigraph.{name}", attributes=dict(attributes))

    set_span_factory(start)
    TracingMiddleware.tracer = tracer
    try:
        yield
    finally:
        TracingMiddleware.tracer = None
        set_span_factory(None)
        provider.shutdown()


def _parse_headers(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    return {name.strip(): value.strip() for name, _, value in pairs}


class TracingMiddleware:
    """Starts the span of a request, as a child of the span that the `traceparent` header names."""

    # Set while this process records spans.
    tracer: Tracer | None = None

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        tracer = type(self).tracer
        if scope["type"] != "http" or tracer is None:
            await self._app(scope, receive, send)
            return
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract(dict(Headers(scope=scope)))
        method = scope["method"]
        with tracer.start_as_current_span(method, parent, SpanKind.SERVER) as span:

            async def send_and_record(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            try:
                await self._app(scope, receive, send_and_record)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.update_name(method if route is None else f"{method} {route}")
                attributes = {
                    "http.request.method": method,
                    "http.route": route,
                    "omnigraph.graph": scope.get("graph_id"),
                    "omnigraph.request_id": scope.get("request_id"),
                }
                span.set_attributes({name: value for name, value in attributes.items() if value is not None})


class OtlpExporter:
    """Sends spans by OTLP over HTTP in its JSON encoding."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._client = httpx.Client(headers=dict(headers), timeout=_EXPORT_SECONDS)
        self._has_failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        """Send spans. A failure is logged once until a later attempt succeeds."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            self._client.post(self._endpoint, json=encode_spans(spans)).raise_for_status()
        except httpx.HTTPError as error:
            if not self._has_failed:
                LOGGER.warning("traces cannot be sent", extra={"fields": {"error": str(error)}})
            self._has_failed = True
            return SpanExportResult.FAILURE
        self._has_failed = False
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the connections."""
        self._client.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - signature of OpenTelemetry
        """Do nothing: `export` waits for the response."""
        return True


def encode_spans(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Return spans of one process as an OTLP request in JSON."""
    resource = spans[0].resource.attributes if spans else {}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": _SCOPE}, "spans": [_span(item) for item in spans]}],
            }
        ]
    }


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        **({} if span.parent is None else {"parentSpanId": f"{span.parent.span_id:016x}"}),
        "name": span.name,
        # OTLP counts the kinds from 1.
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes or {}),
        "status": {"code": span.status.status_code.value},
    }


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}
