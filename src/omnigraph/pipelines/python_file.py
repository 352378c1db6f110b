"""Pipelines in Python files: a file that defines `pipeline`, whose views may be functions over DataFrames."""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.sources.mapping.document import Document, KeyPath, read_text
from omnigraph.store.storage_options import resolve_options

# A function with this parameter receives the session.
SESSION: Final = "spark"
_VARIABLE: Final = "pipeline"
# No module has this name, so Spark sends the functions of the file to tasks by value.
_MODULE: Final = "__omnigraph_pipeline__"


def read_python_document(path: Path) -> tuple[Document, str, str]:
    """Execute a Python file; return the document that it defines, its folder and its text.

    The file can import modules of its folder. Raises `InvalidInput` with the line if it fails or defines no
    `pipeline`.
    """
    name = str(path)
    text = read_text(path, resolve_options(None))
    folder = str(path.parent)
    namespace: dict[str, Any] = {"__name__": _MODULE, "__file__": name}
    # A relative folder would be another one if the file changed the working directory.
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        tree = ast.parse(text, name)
        exec(compile(tree, name, "exec"), namespace)
    except SyntaxError as error:
        raise _located(name, error.lineno, f"invalid Python: {error.msg}") from error
    # The file may raise anything.
    except Exception as error:
        raise _located(name, _line_of(error, name), f"{type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    value = namespace.get(_VARIABLE)
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"the file defines no `{_VARIABLE}`",
            hint=f"write {_VARIABLE} = {{'graph': ..., 'sources': ..., 'nodes': ...}}",
            location=ErrorLocation(source=name),
        )
    return Document(_plain(value), name, dict(_key_lines(tree))), folder, text


def view_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the sources and views that the function of a view reads: the names of its parameters.

    >>> view_parameters(lambda spark, orders, lines: None)
    ('orders', 'lines')
    """
    return tuple(name for name in inspect.signature(function).parameters if name != SESSION)


def call_view(function: Callable[..., Any], session: Any) -> Any:
    """Return the DataFrame of a view. Raises `InvalidInput` for any other result, and if the function fails."""
    given: dict[str, Any] = {name: session.table(name) for name in view_parameters(function)}
    if SESSION in inspect.signature(function).parameters:
        given[SESSION] = session
    try:
        frame = function(**given)
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "omnigraph"):
            raise
        line = _line_of(error, function.__code__.co_filename)
        raise InvalidInput(f"line {line} failed with {type(error).__name__}: {error}") from error
    if not hasattr(frame, "createOrReplaceTempView"):
        raise InvalidInput(f"the function returned {type(frame).__name__}, expected a DataFrame")
    return frame


def _located(name: str, line: int | None, message: str) -> InvalidInput:
    return InvalidInput(message, location=ErrorLocation(source=name, line=line))


def _line_of(error: BaseException, name: str) -> int | None:
    """Return the last line of a file that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == name), None)


def _plain(value: Any) -> Any:
    """Return a value as a YAML file would have it: mappings and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


# --- lines ------------------------------------------------------------------------------------------------


def _key_lines(tree: ast.Module) -> Iterator[tuple[KeyPath, int]]:
    """Yield the lines of the keys that are written as such in `pipeline`, and in variables that it names."""
    values: dict[str, ast.expr] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
    if _VARIABLE in values:
        yield from _lines_of((), values.pop(_VARIABLE), values)


def _lines_of(path: KeyPath, node: ast.expr, values: Mapping[str, ast.expr]) -> Iterator[tuple[KeyPath, int]]:
    match node:
        case ast.Name(id=name) if name in values:
            others = {key: value for key, value in values.items() if key != name}
            yield from _lines_of(path, values[name], others)
        case ast.Dict(keys=keys, values=items):
            for key, item in zip(keys, items, strict=True):
                if isinstance(key, ast.Constant):
                    yield (*path, str(key.value)), key.lineno
                    yield from _lines_of((*path, str(key.value)), item, values)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            for keyword in keywords:
                if keyword.arg is not None:
                    yield (*path, keyword.arg), keyword.lineno
                    yield from _lines_of((*path, keyword.arg), keyword.value, values)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for number, item in enumerate(items):
                yield (*path, str(number)), item.lineno
                yield from _lines_of((*path, str(number)), item, values)
