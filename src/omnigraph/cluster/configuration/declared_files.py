"""Read and check the files of a configuration: schemas, stored queries and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.cluster.addresses import query_address
from omnigraph.cluster.configuration.members import Findings
from omnigraph.cluster.configuration.model import DeclaredFile
from omnigraph.cluster.diagnostics import reason, warning
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.lang.diagnostics import Diagnostic, LanguageError
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.source import Source
from omnigraph.lang.types import Scalar
from omnigraph.rules.external_blobs import DEFAULT_DENY, ExternalBlobPolicy
from omnigraph.sources.mapping.document import parse_document

if TYPE_CHECKING:
    from omnigraph.lang.gq.query_ast import Query
    from omnigraph.lang.schema import Schema
    from omnigraph.policy.bundle import Binding, PolicyBundle

QUERY_SUFFIX = ".gq"


def read_schema_file(
    findings: Findings, path: str, file: Path, external_blobs: ExternalBlobPolicy
) -> tuple[DeclaredFile | None, Schema | None]:
    """Read and compile a schema. The schema is None if it does not compile."""
    place = f"{path}.schema"
    data = _read(findings, "schema_file_missing", place, file)
    if data is None:
        return None, None
    declared = DeclaredFile(file, data)
    try:
        schema = load_schema(decode(data, file), str(file))
    except LanguageError as failure:
        for item in failure.diagnostics:
            code = "schema_catalog_error" if item.phase == "catalog" else "schema_parse_error"
            findings.fail(code, place, _located(item))
        return declared, None
    except InvalidInput as failure:
        findings.fail("schema_parse_error", place, reason(failure))
        return declared, None
    if not external_blobs.bases and _has_blobs(schema):
        message = "the schema has Blob properties; external URIs are refused, because no base is allowed"
        findings.recorded.append(warning(DEFAULT_DENY, f"{path}.external_blobs", message))
    return declared, schema


def read_queries(
    findings: Findings, graph: str, folder: Path, value: Any, schema: Schema | None
) -> Mapping[str, DeclaredFile]:
    """Read and type-check the stored queries of a graph; return the file of each query by name."""
    place = f"graphs.{graph}.queries"
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return _read_named(findings, graph, folder, place, value, schema)
    names = (
        list(_list_folder(findings, place, folder, value))
        if isinstance(value, str)
        else [folder / name for name in findings.texts(place, value)]
    )
    found: dict[str, DeclaredFile] = {}
    for file in names:
        declared, queries = _read_query_file(findings, place, file)
        if declared is None:
            continue
        for query in queries:
            if query.name in found:
                findings.fail(
                    "duplicate_query_name",
                    query_address(graph, query.name),
                    f"query '{query.name}' is in {found[query.name].path} and in {file}",
                )
                continue
            found[query.name] = declared
            _check(findings, graph, query, declared, schema)
    return dict(sorted(found.items()))


def _read_named(
    findings: Findings,
    graph: str,
    folder: Path,
    place: str,
    value: Mapping[Any, Any],
    schema: Schema | None,
) -> Mapping[str, DeclaredFile]:
    """Read the form ``{name: {file: f.gq}}``, which registers one query of a file."""
    found: dict[str, DeclaredFile] = {}
    files: dict[Path, tuple[DeclaredFile | None, tuple[Query, ...]]] = {}
    for name, item in findings.resources(place, value).items():
        own = f"{place}.{name}"
        members = findings.mapping(own, item, ("file",))
        text = findings.text(f"{own}.file", members.get("file"))
        if text is None:
            if not findings.recorded or members.get("file") is None:
                findings.fail("invalid_cluster_yaml", f"{own}.file", "`file` is required")
            continue
        file = folder / text
        if file not in files:
            files[file] = _read_query_file(findings, own, file)
        declared, queries = files[file]
        if declared is None:
            continue
        matching = [query for query in queries if query.name == name]
        if not matching:
            listed = ", ".join(query.name for query in queries) or "none"
            findings.fail("query_key_mismatch", own, f"{file} has no query '{name}', it has: {listed}")
            continue
        if len(matching) > 1:
            findings.fail("duplicate_query_name", query_address(graph, name), f"{file} has '{name}' twice")
            continue
        found[name] = declared
        _check(findings, graph, matching[0], declared, schema)
    return dict(sorted(found.items()))


def _list_folder(findings: Findings, place: str, folder: Path, value: str) -> Iterator[Path]:
    """Yield the query files directly in a folder, by name. A single file is allowed, too."""
    target = folder / value
    if value.endswith(QUERY_SUFFIX) and not target.is_dir():
        yield target
        return
    try:
        listed = sorted(item for item in target.iterdir() if item.suffix == QUERY_SUFFIX and item.is_file())
    except OSError as failure:
        findings.fail("query_dir_unreadable", place, f"cannot list {target}: {failure.strerror}")
        return
    if not listed:
        message = f"there is no *{QUERY_SUFFIX} file in {target}"
        findings.recorded.append(warning("query_dir_empty", place, message))
    yield from listed


def _read_query_file(
    findings: Findings, place: str, file: Path
) -> tuple[DeclaredFile | None, tuple[Query, ...]]:
    data = _read(findings, "query_file_missing", place, file)
    if data is None:
        return None, ()
    try:
        parsed = parse_queries(Source(decode(data, file), str(file)))
    except LanguageError as failure:
        for item in failure.diagnostics:
            findings.fail("query_parse_error", place, _located(item))
        return None, ()
    except InvalidInput as failure:
        findings.fail("query_parse_error", place, reason(failure))
        return None, ()
    return DeclaredFile(file, data), tuple(parsed.queries)


def _check(
    findings: Findings, graph: str, query: Query, declared: DeclaredFile, schema: Schema | None
) -> None:
    address = query_address(graph, query.name)
    if schema is None:
        message = "not type-checked, because the schema has errors"
        findings.recorded.append(warning("query_typecheck_skipped", address, message))
        return
    try:
        check_query(query, schema, Source(decode(declared.data, declared.path), str(declared.path)))
    except LanguageError as failure:
        for item in failure.diagnostics:
            findings.fail("query_typecheck_error", address, _located(item))


def read_policy_file(
    findings: Findings, path: str, file: Path, binding: Binding | None
) -> DeclaredFile | None:
    """Read and check a policy bundle."""
    data = _read(findings, "policy_file_missing", f"{path}.file", file)
    if data is None:
        return None
    try:
        parse_policy(data, str(file), binding)
    except OmnigraphError as failure:
        findings.fail("policy_invalid", f"{path}.file", reason(failure))
        return None
    return DeclaredFile(file, data)


def parse_policy(data: bytes, name: str, binding: Binding | None) -> PolicyBundle:
    """Return the bundle of a policy file; `binding` is what it applies to. Raises `InvalidInput`."""
    document = parse_document(name, decode(data, name))
    found: PolicyBundle = document.located((), lambda: read_policy(document.value, binding=binding))
    return found


def decode(data: bytes, name: Path | str) -> str:
    """Return the text of a file. Raises `InvalidInput` unless it is UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InvalidInput(f"{name} is not UTF-8 text: {failure}") from failure


def _read(findings: Findings, code: str, place: str, file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError as failure:
        findings.fail(code, place, f"cannot read {file}: {failure.strerror}")
        return None


def _located(item: Diagnostic) -> str:
    return f"{item.file}:{item.line}:{item.column}: {item.text}" + (f" ({item.hint})" if item.hint else "")


def _has_blobs(schema: Schema) -> bool:
    return any(
        item.type.scalar is Scalar.BLOB
        for owner in (*schema.nodes, *schema.edges)
        for item in owner.properties
    )
