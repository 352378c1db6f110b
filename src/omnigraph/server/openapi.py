"""The OpenAPI document of a server with tokens, as a file: ``python -m omnigraph.server.openapi FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph.server.app import create_app
from omnigraph.server.hosted_graphs import Hosted
from omnigraph.server.http.authentication import Identities


def write_document(path: Path) -> None:
    """Write the document to a file."""
    document = create_app(Hosted(identities=Identities.of({"somebody": "token"}))).openapi()
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_document(Path(sys.argv[1]))
