"""Objects outside a graph: a web server of this process that answers requests for some paths."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class WebObjects:
    """Paths with the status of the response, and the requests so far. An unknown path is answered 404."""

    url: str = ""
    statuses: Mapping[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def web_objects(statuses: Mapping[str, int]) -> Iterator[WebObjects]:
    """Serve objects on a port of this machine."""
    found = WebObjects(statuses=statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            found.requests.append((self.command, self.path))
            self.send_response(found.statuses.get(self.path, 404))
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
