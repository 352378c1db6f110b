"""Checks of what a pipeline file names outside of itself: types of the graph or schema file, and stored queries.

A run checks them before it reads rows, because a missing query would otherwise be found after the load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import NotFound
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.pipelines.audit_expressions import parse_expectation, type_names
from omnigraph.pipelines.definition import Audit
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.sources.mapping.document import read_text
from omnigraph.store.storage_options import resolve_options

# Raises `NotFound` if there is no type of a kind and a name.
_FindType: TypeAlias = Callable[[str, str], object]


def check_references(pipeline: Pipeline, graph: LocalGraph | None) -> None:
    """Check the schema file, the types of the targets, and the queries of the audits.

    With a schema file the types are those of the file, because a run applies it first. Without it they are those of
    the graph; they are not checked if the graph does not exist yet.
    """
    find_type: _FindType | None = None
    if pipeline.definition.schema_ is not None:
        find_type = pipeline.document.located(
            ("schema",), partial(_types_of_file, pipeline, pipeline.definition.schema_)
        )
    elif graph is not None:
        find_type = partial(_find_in_graph, graph.runs.catalog(pipeline.definition.publish.from_))
    if find_type is not None:
        for kind in ("nodes", "edges"):
            for name in getattr(pipeline.definition, kind):
                pipeline.document.located((kind, name), partial(find_type, kind[:-1], name))
    for number, audit in enumerate(pipeline.definition.audits):
        path = ("audits", str(number))
        pipeline.document.located(path, partial(_check_query, pipeline, audit))
        if find_type is not None and audit.diff is not None:
            pipeline.document.located((*path, "expect"), partial(_check_types, find_type, audit.expect))


def _find_in_graph(catalog: Catalog, kind: str, name: str) -> None:
    find_table(catalog, f"{kind}:{name}")


def _types_of_file(pipeline: Pipeline, path: str) -> _FindType:
    resolved = pipeline.resolve(path)
    schema = load_schema(read_text(resolved, resolve_options(None)), resolved)
    names = {"node": [node.name for node in schema.nodes], "edge": [edge.name for edge in schema.edges]}

    def find(kind: str, name: str) -> None:
        if name not in names[kind]:
            raise NotFound(f"`{path}` has no {kind} type '{name}'{did_you_mean(name, names[kind])}")

    return find


def _check_types(find_type: _FindType, expectation: str) -> None:
    for name in type_names(parse_expectation(expectation)):
        try:
            find_type("edge", name)
        except NotFound:
            find_type("node", name)


def _check_query(pipeline: Pipeline, audit: Audit) -> None:
    if audit.query is None:
        return
    path, _, name = audit.query.rpartition("#")
    resolved = pipeline.resolve(path)
    text = read_text(resolved, resolve_options(None))
    names = [query.name for query in parse_queries(Source(text, resolved)).queries]
    if name not in names:
        raise NotFound(f"`{path}` has no query '{name}'{did_you_mean(name, names)}")
