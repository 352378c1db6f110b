"""The API reference as one HTML page without scripts, made from the OpenAPI document."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body{color:#1d2733;background:#fff}
h1,h2{line-height:1.2}
h2{margin-top:2.5rem;border-bottom:1px solid #d5dbe1}
a{color:#0b5cad}
code{font:14px ui-monospace,monospace}
details{border:1px solid #d5dbe1;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
.m{display:inline-block;min-width:4.2rem;font-weight:600}
.d{text-decoration:line-through}
table{border-collapse:collapse;margin:.5rem 0;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}
th{font-weight:600;border-bottom:1px solid #d5dbe1}
nav a{margin-right:1rem}
@media(prefers-color-scheme:dark){
body{color:#dde3ea;background:#14181d}
a{color:#7cb7f2}
details,h2,th{border-color:#3a434d}
}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# A page that could load or run nothing but its own style.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def render_landing(document: Mapping[str, Any]) -> str:
    """Return the page at `/`."""
    info = document["info"]
    body = (
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>\n<p>{escape(info['description'])}</p>\n"
        '<nav><a href="/docs">API reference</a><a href="/openapi.json">OpenAPI document</a>'
        '<a href="/healthz">Health</a><a href="/readyz">Readiness</a></nav>\n'
    )
    return _page(info["title"], body)


def render_reference(document: Mapping[str, Any]) -> str:
    """Return the page at `/docs`: every operation by tag, and every component."""
    info = document["info"]
    operations: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            operations.setdefault(tag, []).append("".join(_operation(method, path, operation)))
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in operations)
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}: API reference</h1>\n",
        f"<p>{escape(info['description'])} The same as a machine-readable document: ",
        '<a href="/openapi.json">openapi.json</a>.</p>\n',
        f'<nav>{links}<a href="#components">components</a></nav>\n',
    ]
    for tag, rendered in operations.items():
        parts += [f'<h2 id="{escape(tag)}">{escape(tag)}</h2>\n', *rendered]
    parts.append('<h2 id="components">components</h2>\n')
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append("".join(_component(name, schema)))
    return _page(f"{info['title']}: API reference", "".join(parts))


def _page(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n{body}</body></html>\n"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    is_deprecated = ' class="d"' if operation.get("deprecated") else ""
    yield (
        f'<details id="{escape(operation["operationId"])}"><summary><span class="m">{method.upper()}</span>'
        f"<code{is_deprecated}>{escape(path)}</code> {escape(operation['summary'])}</summary>\n"
    )
    yield f"<p>{escape(operation['description'])}</p>\n"
    yield f"<p>operationId: {_code(operation['operationId'])}</p>\n"
    if parameters := operation.get("parameters"):
        rows = [
            (
                _code(item["name"]),
                escape(item["in"]),
                _type(item.get("schema", {})),
                "required" if item.get("required") else "",
            )
            for item in parameters
        ]
        yield _table(("parameter", "in", "type", ""), rows)
    if body := operation.get("requestBody"):
        yield _table(("request body", "type"), _contents(body.get("content", {})))
    answers = []
    for status, response in operation["responses"].items():
        shapes = "<br>".join(shape for _, shape in _contents(response.get("content", {})))
        answers.append((_code(status), escape(response["description"]), shapes))
    yield _table(("response", "meaning", "body"), answers)
    yield "</details>\n"


def _contents(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (_code(media_type), _type(item["schema"]) if item.get("schema") else _code(media_type))
        for media_type, item in content.items()
    ]


def _component(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>\n'
    if description := schema.get("description"):
        yield f"<p>{escape(description)}</p>\n"
    members = schema.get("properties")
    if members is None:
        yield f"<p>{_type(schema)}</p>\n"
    else:
        required = set(schema.get("required", ()))
        rows = [
            (
                _code(member),
                _type(item),
                "required" if member in required else "",
                escape(item.get("description", "")),
            )
            for member, item in members.items()
        ]
        yield _table(("member", "type", "", "meaning"), rows)
    yield "</details>\n"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table><tr>{cells}</tr>\n{body}</table>\n"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema as HTML, with links to components.

    >>> _type({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
    'list of string or null'
    """
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(item) for item in schema[key])
    if "enum" in schema:
        return ", ".join(_code(value) for value in schema["enum"])
    if "const" in schema:
        return _code(schema["const"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    form = schema.get("format")
    return escape(f"{kind} ({form})" if form else kind)
