"""Write the OpenAPI document of an authenticated server: ``python -m omnigraph.server.openapi FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph.server.app import create_app
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.authentication import TokenRegistry


def write_document(path: Path) -> None:
    """Write the document to a file."""
    document = create_app(ServerResources(tokens=TokenRegistry.of({"actor": "token"}))).openapi()
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_document(Path(sys.argv[1]))
