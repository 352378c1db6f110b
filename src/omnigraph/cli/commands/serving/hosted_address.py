"""What the argument of `serve` and `studio` names: one graph, a folder of graphs, or a configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.commands.lint import MANIFEST

if TYPE_CHECKING:
    from omnigraph.api.hosting.graph_sources import Hosting

_CONFIG_SUFFIXES = (".yaml", ".yml")


def find_hosting(address: str) -> Hosting | str:
    """Return the graph at an address, or the path of a configuration or a folder of graphs.

    A graph has the id of its name: ``team`` for ``data/team.omni``.
    """
    from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
    from omnigraph.api.hosting.hosting_config import GRAPH_SUFFIX

    path = Path(address)
    is_folder = path.is_dir() and not (path / MANIFEST).is_dir()
    if is_folder or path.suffix in _CONFIG_SUFFIXES:
        return address
    name = address.rstrip("/").rpartition("/")[2].removesuffix(GRAPH_SUFFIX)
    # The id is only the name of the graph in the address of the page.
    id_ = re.sub(r"[^a-zA-Z0-9-]+", "-", name).strip("-")[:64] or "graph"
    return Hosting((GraphSource(id_, address),))


def is_graph(address: str) -> bool:
    """Return whether an address is that of one graph: a folder with a graph, or a URI that ends as one does.

    >>> is_graph("s3://bucket/team.omni"), is_graph("s3://bucket/serve.yaml")
    (True, False)
    """
    from omnigraph.api.hosting.hosting_config import GRAPH_SUFFIX

    if "://" in address:
        return address.rstrip("/").endswith(GRAPH_SUFFIX)
    return (Path(address) / MANIFEST).is_dir()
