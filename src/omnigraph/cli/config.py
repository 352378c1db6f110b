"""The operator's own settings, from ``config.yaml`` in ``~/.omnigraph`` or ``$OMNIGRAPH_HOME``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.output import warn
from omnigraph.errors import InvalidInput, NotFound

TextFormat: TypeAlias = Literal["table", "kv", "csv", "jsonl", "json"]
CellLayout: TypeAlias = Literal["truncate", "wrap"]

_KEPT = "omnigraph.config"
_SECTIONS = ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
_KEYS = {
    "operator": ("actor",),
    "defaults": (
        "output",
        "table_max_column_width",
        "table_cell_layout",
        "server",
        "default_graph",
        "store",
    ),
}


@dataclass(frozen=True)
class Config:
    """What the operator has settled once; everything has a default."""

    actor: str | None = None
    store: str | None = None
    server: str | None = None
    default_graph: str | None = None
    output: TextFormat = "table"
    table_max_column_width: int = 80
    table_cell_layout: CellLayout = "truncate"


def config_of(ctx: typer.Context) -> Config:
    """The settings for this run of the command line, read when they are first asked for."""
    if _KEPT not in ctx.meta:
        ctx.meta[_KEPT] = read_config(config_path(os.environ))
    return cast(Config, ctx.meta[_KEPT])


def config_path(environment: Mapping[str, str]) -> Path:
    """Where the settings are.

    >>> str(config_path({"OMNIGRAPH_HOME": "/etc/omnigraph"}))
    '/etc/omnigraph/config.yaml'
    """
    home = environment.get("OMNIGRAPH_HOME")
    return (Path(home) if home else Path.home() / ".omnigraph") / "config.yaml"


def read_config(path: Path) -> Config:
    """The settings of a file; those of one that is not there are the defaults.

    Keys that mean nothing are warned of. Raises `InvalidInput` for what is not YAML, and for values that cannot
    be meant.
    """
    try:
        text = read_source(str(path))
    except NotFound:
        return Config()
    document = _section(_parse(text, path), path, "the settings")
    _warn_of_unknown(document, _SECTIONS, path, "")
    operator, defaults = (_part(document, name, path) for name in ("operator", "defaults"))
    found = Config(
        actor=_text(operator, "operator.actor", path),
        store=_text(defaults, "defaults.store", path),
        server=_text(defaults, "defaults.server", path),
        default_graph=_text(defaults, "defaults.default_graph", path),
        output=cast(TextFormat, _choice(defaults, "defaults.output", get_args(TextFormat), path)),
        table_max_column_width=_width(defaults, path),
        table_cell_layout=cast(
            CellLayout, _choice(defaults, "defaults.table_cell_layout", get_args(CellLayout), path)
        ),
    )
    for other in ("server", "default_graph"):
        if found.store is not None and getattr(found, other) is not None:
            raise InvalidInput(f"{path}: defaults.store and defaults.{other} exclude each other")
    return found


def _parse(text: str, path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidInput(f"{path}{place} is not YAML: {problem}") from error


def _part(document: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    part = _section(document.get(name), path, name)
    _warn_of_unknown(part, _KEYS[name], path, f"{name}.")
    return part


def _section(value: Any, path: Path, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{path}: {name} must be a mapping, not {value!r}")
    return value


def _warn_of_unknown(part: Mapping[str, Any], known: tuple[str, ...], path: Path, prefix: str) -> None:
    from omnigraph.lang.source import did_you_mean

    for key in part:
        if key not in known:
            warn(f"{path}: unknown key '{prefix}{key}'{did_you_mean(str(key), list(known))}")


def _text(part: Mapping[str, Any], name: str, path: Path) -> str | None:
    value = part.get(name.rpartition(".")[2])
    if value is None or (isinstance(value, str) and value.strip() and value.isprintable()):
        return value
    raise InvalidInput(f"{path}: {name} must be a readable text, not {value!r}")


def _choice(part: Mapping[str, Any], name: str, choices: tuple[str, ...], path: Path) -> str:
    key = name.rpartition(".")[2]
    value = part.get(key)
    if value is None:
        return str(getattr(Config, key))
    if value not in choices:
        raise InvalidInput(f"{path}: {name} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def _width(part: Mapping[str, Any], path: Path) -> int:
    value = part.get("table_max_column_width")
    if value is None:
        return Config.table_max_column_width
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(
            f"{path}: defaults.table_max_column_width must be a number of at least 1, not {value!r}"
        )
    return value
