"""Reading and validation of a pipeline file. Errors name the file, the line and the key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlglot
import sqlglot.errors
from pydantic import ValidationError
from sqlglot import exp

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean, suggestion
from omnigraph.maintain.retention import parse_duration
from omnigraph.pipelines.audit_expressions import parse_expectation
from omnigraph.pipelines.definition import (
    Audit,
    Dedup,
    Definition,
    EdgeTarget,
    Expected,
    FileSource,
    NodeTarget,
    Publish,
    Quarantine,
    Section,
    SparkSource,
    TestCase,
    View,
)
from omnigraph.pipelines.python_file import read_python_document, view_parameters
from omnigraph.pipelines.variables import Secrets, process_variables, substitute, variable_names
from omnigraph.sources.mapping.document import Document, KeyPath, read_document
from omnigraph.store.storage_options import resolve_options

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# The sections of a file, as hints name them. All others are sources.
_SECTIONS: Final[Mapping[type[Section], str]] = {
    Audit: "an audit",
    Dedup: "`dedup`",
    Definition: "the file",
    EdgeTarget: "an edge",
    Expected: "`expect` of a test",
    NodeTarget: "a node",
    Publish: "`publish`",
    Quarantine: "`quarantine`",
    TestCase: "a test",
}
_SQL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Pipeline:
    """A validated pipeline file.

    `folder` is the folder that relative paths start from. `digest` identifies the text of the definition without
    the values of variables. `view_order` has the views, each after those that it reads. `inputs` has the sources
    that each source, view or target reads.
    """

    name: str
    definition: Definition
    folder: str
    digest: str
    view_order: tuple[str, ...]
    inputs: Mapping[str, frozenset[str]]
    document: Document = field(repr=False)
    secrets: Secrets = field(default_factory=Secrets, repr=False)

    def resolve(self, path: str) -> str:
        """Return a path of the file. A relative path starts at the folder of the file."""
        if "://" in path or Path(path).is_absolute():
            return path
        if "://" in self.folder:
            return f"{self.folder}/{path}"
        return str(Path(self.folder) / path)

    @property
    def used_sources(self) -> frozenset[str]:
        """The sources that a target reads, directly or through views."""
        targets = (*self.definition.nodes.values(), *self.definition.edges.values())
        return frozenset().union(*(self.inputs[target.from_] for target in targets))


def read_pipeline(path: str | Path, variables: Mapping[str, str] | None = None) -> Pipeline:
    """Read and validate a pipeline file.

    `variables` are the values for ``${NAME}``; default: the environment variables of the process. Raises
    `InvalidInput` with the file, the line and the key of the first mistake.
    """
    document, folder, digest = _read(path)
    values = process_variables() if variables is None else variables
    secrets = _used_variables(document, values)
    try:
        return _validated(path, document, folder, digest, secrets)
    except InvalidInput as error:
        # A message may quote SQL or a key that comes from a variable.
        redacted, hint = secrets.redact(error.message), secrets.redact(error.hint or "") or None
        if (redacted, hint) == (error.message, error.hint):
            raise
        raise InvalidInput(redacted, hint=hint, details=error.details) from None


def _validated(path: str | Path, document: Document, folder: str, digest: str, secrets: Secrets) -> Pipeline:
    definition = _parse(document, substitute(document.value, secrets.values))
    name = definition.name or Path(str(path)).name.partition(".")[0]
    if not _NAME.fullmatch(name):
        raise document.error(
            ("name",), f"'{name}' is not a pipeline name", hint="use up to 64 letters, digits, _ and -"
        )
    reads = _view_reads(document, definition)
    order = _view_order(document, reads)
    _check_targets(document, definition)
    _check_details(document, definition)
    return Pipeline(
        name=name,
        definition=definition,
        folder=folder,
        digest=digest,
        view_order=order,
        inputs=_source_inputs(definition, reads, order),
        document=document,
        secrets=secrets,
    )


def _read(path: str | Path) -> tuple[Document, str, str]:
    """Return the document of a file, its folder, and the digest of the definition."""
    if str(path).endswith(".py"):
        document, folder, text = read_python_document(Path(path))
    else:
        document, folder = read_document(path, resolve_options(None))
        # Tests and formatting do not change what a run does.
        value = {key: item for key, item in document.object((), document.value).items() if key != "tests"}
        text = json.dumps(value, sort_keys=True, default=str)
    return document, folder, hashlib.sha256(text.encode()).hexdigest()[:16]


def _used_variables(document: Document, variables: Mapping[str, str]) -> Secrets:
    used: dict[str, str] = {}
    for path, text in _texts((), document.value):
        for name in variable_names(text):
            if name not in variables:
                raise document.error(path, f"the environment variable {name} is not set")
            used[name] = variables[name]
    return Secrets(used)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts((*path, str(key)), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts((*path, str(number)), item)


# --- shape ------------------------------------------------------------------------------------------------


def _parse(document: Document, value: Any) -> Definition:
    document.object((), value)
    try:
        return Definition.model_validate(value)
    except ValidationError as error:
        # Values are left out of messages, because they may come from variables.
        first = error.errors(include_input=False, include_url=False)[0]
        path = _path_of(value, first["loc"], is_missing=first["type"] == "missing")
        raise document.error(path, _message(first), hint=_hint(first, path)) from None


def _path_of(value: Any, location: Sequence[str | int], *, is_missing: bool) -> KeyPath:
    """Return the keys of an error's location, without the names of alternatives that pydantic adds."""
    path: list[str] = []
    for number, part in enumerate(location):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        elif number + 1 < len(location) or not is_missing:
            continue
        path.append(str(part))
    return tuple(path)


def _message(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "this key is missing"
        case "extra_forbidden":
            return "unknown key"
        case "union_tag_not_found":
            return "the key `format` is missing"
        case "union_tag_invalid":
            return f"unknown format '{context['tag']}'"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return f"expected {context['expected']}"
        case "too_short":
            return "expected at least one item"
        case "string_type":
            return "expected text"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "expected a mapping"
        case "list_type":
            return "expected a list"
    text: str = error["msg"]
    return text[:1].lower() + text[1:].replace("input should be", "expected")


def _hint(error: Any, path: KeyPath) -> str | None:
    if error["type"] == "union_tag_invalid":
        formats = [name.strip().strip("'") for name in error["ctx"]["expected_tags"].split(",")]
        return suggestion(error["ctx"]["tag"], formats) or f"use one of {', '.join(formats)}"
    if error["type"] == "string_type":
        return "put it in quotes"
    if error["type"] != "extra_forbidden" or not path:
        return None
    owners = {_SECTIONS.get(model, "a source") for model in _models() if path[-1] in _keys(model)}
    if owners:
        return f"`{path[-1]}` is a key of {' and '.join(sorted(owners))}"
    return suggestion(path[-1], sorted({name for model in _models() for name in _keys(model)}))


def _keys(model: type[Section]) -> set[str]:
    return {item.alias or name for name, item in model.model_fields.items()}


def _models() -> list[type[Section]]:
    found: list[type[Section]] = []
    pending: list[type[Section]] = [Section]
    while pending:
        model = pending.pop()
        found.append(model)
        pending += model.__subclasses__()
    return found


# --- references -------------------------------------------------------------------------------------------


def _view_reads(document: Document, definition: Definition) -> dict[str, frozenset[str]]:
    """Return the sources and views that each view reads."""
    reads: dict[str, frozenset[str]] = {}
    for kind in ("sources", "views"):
        for name in getattr(definition, kind):
            if not _SQL_NAME.fullmatch(name):
                raise document.error((kind, name), "expected a name of letters, digits and _")
    known = {*definition.sources, *definition.views}
    for name, view in definition.views.items():
        path = ("views", name)
        if name in definition.sources:
            raise document.error(path, f"a source has the name '{name}' too")
        names = _table_names(document, path, view)
        for table in sorted(names - known):
            raise document.error(
                path, f"unknown source or view '{table}'{did_you_mean(table, sorted(known - {name}))}"
            )
        reads[name] = names
    return reads


def _table_names(document: Document, path: KeyPath, view: View) -> frozenset[str]:
    if not isinstance(view, str):
        return frozenset(view_parameters(view))
    try:
        parsed = sqlglot.parse_one(view, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise document.error(path, _sql_reason(error)) from None
    if not isinstance(parsed, exp.Query):
        raise document.error(path, "expected a query that starts with SELECT or WITH")
    common = {item.alias for item in parsed.find_all(exp.CTE)}
    tables = [table for table in parsed.find_all(exp.Table) if table.name]
    # A name with a database, such as sales.people, is a table of Spark's catalog.
    return frozenset(table.name for table in tables if not table.db and table.name not in common)


def _sql_reason(error: sqlglot.errors.SqlglotError) -> str:
    """Return where the SQL is wrong. The reasons of the parser name its own classes."""
    details = (getattr(error, "errors", None) or [{}])[0]
    start, wrong = details.get("start_context") or "", details.get("highlight") or ""
    near = f"{start} {wrong}".split()[-4:]
    return f"invalid SQL near `{' '.join(near)}`" if near else "invalid SQL"


def _view_order(document: Document, reads: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    order: list[str] = []
    pending: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in reads:
            return
        if name in pending:
            raise document.error(("views", name), f"the view reads itself: {' -> '.join([*pending, name])}")
        pending.append(name)
        for other in sorted(reads[name]):
            visit(other)
        pending.pop()
        order.append(name)

    for name in reads:
        visit(name)
    return tuple(order)


def _source_inputs(
    definition: Definition, reads: Mapping[str, frozenset[str]], order: Sequence[str]
) -> dict[str, frozenset[str]]:
    inputs = {name: frozenset({name}) for name in definition.sources}
    for name in order:
        inputs[name] = frozenset().union(*(inputs[other] for other in reads[name]))
    return inputs


def _check_targets(document: Document, definition: Definition) -> None:
    if not definition.nodes and not definition.edges:
        raise document.error((), "expected `nodes` or `edges`")
    known = [*definition.sources, *definition.views]
    for kind in ("nodes", "edges"):
        targets: Mapping[str, NodeTarget] = getattr(definition, kind)
        for name, target in targets.items():
            path = (kind, name)
            if target.from_ not in known:
                raise document.error(
                    (*path, "from"),
                    f"unknown source or view '{target.from_}'{did_you_mean(target.from_, known)}",
                )
            for key in ("on_fail", "on_orphan"):
                if getattr(target, key, None) == "quarantine" and definition.quarantine is None:
                    raise document.error((*path, key), "the file has no `quarantine`")
            for rule, condition in target.expect.items():
                _check_condition(document, (*path, "expect", rule), condition)
            if target.delete_when is not None:
                _check_condition(document, (*path, "delete_when"), target.delete_when)
            _check_mode(document, path, target)
    _check_mixed_modes(document, definition)


def _check_mode(document: Document, path: KeyPath, target: NodeTarget) -> None:
    if target.mode in ("append", "overwrite") and target.delete_when is not None:
        raise document.error((*path, "delete_when"), f"the mode {target.mode} deletes no single rows")
    if target.order_by is not None and target.dedup is not None:
        raise document.error((*path, "order_by"), "use one of `order_by` and `dedup`")


def _check_mixed_modes(document: Document, definition: Definition) -> None:
    """Check that one load can have all modes: append and overwrite apply to a whole load."""
    first: tuple[str, str] | None = None
    for kind in ("nodes", "edges"):
        for name, target in getattr(definition, kind).items():
            group = target.mode if target.mode in ("append", "overwrite") else "merge"
            if first is not None and group != first[0]:
                raise document.error(
                    (kind, name, "mode"),
                    f"a run is one load, which cannot {target.mode} this type and {first[1]}",
                    hint="use merge, patch or delete, or another file",
                )
            first = first or (group, f"{target.mode} '{name}'")


def _check_condition(document: Document, path: KeyPath, text: str) -> None:
    try:
        sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        raise document.error(path, _sql_reason(error)) from None


def _check_details(document: Document, definition: Definition) -> None:
    if "{run_id}" not in definition.publish.branch and definition.publish.branch == definition.publish.from_:
        raise document.error(
            ("publish", "branch"), "the run needs a branch of its own", "use review/{run_id}"
        )
    appended = {
        target.from_
        for target in (*definition.nodes.values(), *definition.edges.values())
        if target.mode == "append"
    }
    for name, source in definition.sources.items():
        increment = getattr(source, "incremental", None)
        if isinstance(source, SparkSource) and source.reader == "omnigraph":
            raise document.error(("sources", name, "reader"), "use `format: omnigraph`")
        if isinstance(source, FileSource) or increment is None:
            continue
        if increment.lag is not None:
            lag_path = ("sources", name, "incremental", "lag")
            document.located(lag_path, partial(_check_lag, increment.lag))
            if name in appended:
                raise document.error(
                    lag_path, "a lag reads rows again, which the mode append would store twice"
                )
    for number, audit in enumerate(definition.audits):
        path = ("audits", str(number))
        if audit.query is not None and "#" not in audit.query:
            raise document.error((*path, "query"), "expected FILE#QUERY, such as audits.gq#orphans")
        document.located((*path, "expect"), partial(parse_expectation, audit.expect))
    for name, test in definition.tests.items():
        _check_test(document, definition, ("tests", name), test)


def _check_lag(lag: str | int) -> None:
    if isinstance(lag, str):
        parse_duration(lag)
    elif lag < 0:
        raise InvalidInput("expected a number from 0 on")


def _check_test(document: Document, definition: Definition, path: KeyPath, test: TestCase) -> None:
    for source in test.sources:
        if source not in definition.sources:
            raise document.error(
                (*path, "sources", source),
                f"unknown source '{source}'{did_you_mean(source, list(definition.sources))}",
            )
