"""Render the reference pages of the documentation from the code: commands, HTTP routes and error codes.

Each function returns Markdown. `scripts/site_hooks.py` puts it in place of a marker such as
`<!-- generate: commands -->` when the site is built, so a reference page cannot differ from the code.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from omnigraph import errors
from omnigraph.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
OPENAPI = ROOT / "docs" / "openapi.json"
REPEATABLE = " (repeatable)"


# --- Command line -------------------------------------------------------------------------------------


def commands() -> str:
    """Return a section for every command that `omnigraph --help` lists, subcommands included."""
    root: Any = get_command(app)
    # A global option is collected into a list only to refuse it when it is repeated.
    parts = ["## Global options\n\n" + _parameters(root.params, "option").replace(REPEATABLE, "")]
    for path, command in _walk(root, "omnigraph"):
        shown = [item for item in command.params if not item.hidden and "--help" not in item.opts]
        arguments = [item for item in shown if item.param_type_name == "argument"]
        options = [item for item in shown if item.param_type_name == "option"]
        usage = " ".join([path, *(_usage(item) for item in arguments), *(["[OPTIONS]"] if options else [])])
        parts.append(f"## {path}\n\n{_prose(command.help)}\n\n```text\n{usage}\n```")
        parts.extend(
            _parameters(items, kind) for items, kind in ((arguments, "argument"), (options, "option"))
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def command_paths() -> list[str]:
    """Return every command that is not hidden, such as `omnigraph branch create`."""
    return [path for path, _ in _walk(get_command(app), "omnigraph")]


def _walk(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(group.commands):
        command = group.commands[name]
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _walk(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _usage(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[].")
    shown = name if argument.required else f"[{name}]"
    return f"{shown}..." if argument.nargs == -1 else shown


def _parameters(items: list[Any], kind: str) -> str:
    rows = [(_spelling(item), _meaning(item)) for item in items if not item.hidden]
    return _table((kind, "meaning"), rows) if rows else ""


def _spelling(item: Any) -> str:
    if item.param_type_name == "argument":
        return f"`{_usage(item)}`"
    names = ", ".join([*item.opts, *item.secondary_opts])
    value = "" if item.is_flag else f" {item.metavar or item.name.upper()}"
    return f"`{names}{value}`" + (REPEATABLE if item.multiple else "")


def _meaning(item: Any) -> str:
    notes = ["required"] if item.required else []
    if item.show_default and item.default not in (None, False, (), []) and not callable(item.default):
        notes.append(f"default: `{item.default}`")
    if item.envvar:
        notes.append(f"environment: `{item.envvar}`")
    return " ".join([_prose(item.help), *([f"({'; '.join(notes)})"] if notes else [])])


# --- HTTP ---------------------------------------------------------------------------------------------


def routes() -> str:
    """Return a section for every route and every schema in docs/openapi.json."""
    document = json.loads(OPENAPI.read_text(encoding="utf-8"))
    parts = ["## Routes"]
    for path, item in sorted(document["paths"].items()):
        parts += [_route(method, path, operation) for method, operation in item.items()]
    parts.append("## Types")
    parts += [_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "\n\n".join(parts) + "\n"


def _route(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"### {method.upper()} {path}", _prose(operation.get("description") or operation["summary"])]
    parameters = [
        (
            f"`{item['name']}`",
            item["in"],
            _type(item["schema"]),
            _note(item, required=item.get("required", False)),
        )
        for item in operation.get("parameters", ())
    ]
    if parameters:
        parts.append(_table(("parameter", "in", "type", "meaning"), parameters))
    bodies = operation.get("requestBody", {}).get("content", {})
    if bodies:
        rows = [(f"`{media}`", _type(content.get("schema", {}))) for media, content in bodies.items()]
        parts.append(_table(("request body", "type"), rows))
    parts.append(
        _table(
            ("status", "response", "meaning"),
            [
                (status, _contents(answer.get("content", {})), _prose(answer["description"]))
                for status, answer in sorted(operation["responses"].items())
            ],
        )
    )
    return "\n\n".join(parts)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"### {name}", _prose(schema.get("description", ""))]
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", _type(found), _note(found, required=field in required))
        for field, found in schema.get("properties", {}).items()
    ]
    parts.append(_table(("field", "type", "meaning"), rows) if rows else f"Type: {_type(schema)}.")
    return "\n\n".join(part for part in parts if part)


def _contents(contents: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_type(content['schema'])}" if content.get("schema") and "json" in media else f"`{media}`"
        for media, content in contents.items()
    )


def _note(item: Mapping[str, Any], *, required: bool) -> str:
    described = item.get("description") or item.get("schema", {}).get("description", "")
    return " ".join([_prose(described), *(["(required)"] if required else [])]).strip()


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in one line; a named schema is a link to its section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(item) for item in schema[several])
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


# --- Errors -------------------------------------------------------------------------------------------


def error_codes() -> str:
    """Return the table of error classes with their codes, and a section for each class."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    rows = [
        (
            f"[`{kind.__name__}`](#{kind.__name__.lower()})",
            f"`{kind.code}`",
            _prose(inspect.getdoc(kind) or ""),
        )
        for kind in kinds
        if kind is not errors.OmnigraphError
    ]
    summaries = [(name, code, re.split(r"(?<=\.)\s", text, maxsplit=1)[0]) for name, code, text in rows]
    sections = [
        f"### {kind.__name__}\n\nCode `{kind.code}`.\n\n{_without_doctest(inspect.getdoc(kind) or '')}"
        for kind in kinds
    ]
    return "\n\n".join([_table(("class", "code", "meaning"), summaries), *sections]) + "\n"


def _without_doctest(text: str) -> str:
    return text.partition("\n>>>")[0].strip()


# --- Markdown -----------------------------------------------------------------------------------------


GENERATORS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "routes": routes,
    "error-codes": error_codes,
}
MARKER = re.compile(r"^<!-- generate: ([a-z-]+) -->$", flags=re.MULTILINE)


def fill(page: str) -> str:
    """Return a page with every marker replaced by its generated text."""
    return MARKER.sub(lambda found: GENERATORS[found[1]](), page)


def _prose(text: str | None) -> str:
    """Return a text on one line, with `<` escaped where Markdown would read it as HTML."""
    return re.sub(r"<(?=[a-z/])", "&lt;", " ".join((text or "").split()))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
