"""The settings file: ``config.yaml`` in ``~/.omnigraph`` or ``$OMNIGRAPH_HOME``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import typer

from omnigraph.api.display.text_table import CellLayout
from omnigraph.cli.settings.sections import Section, parse_sections
from omnigraph.cli.source_files import read_source
from omnigraph.errors import InvalidInput, NotFound

TextFormat: TypeAlias = Literal["table", "kv", "csv", "jsonl", "json", "markdown"]
ScopeKind: TypeAlias = Literal["server", "cluster", "store"]

_CACHE_KEY = "omnigraph.config"
_SECTIONS = ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
_SCOPES: tuple[ScopeKind, ...] = get_args(ScopeKind)
_DEFAULTS = ("output", "table_max_column_width", "table_cell_layout", "server", "default_graph", "store")
_ALIAS = ("server", "graph", "query", "args", "params", "format")


@dataclass(frozen=True)
class Profile:
    """A named address. A profile without an address, or with several, has an `error` and cannot be used."""

    name: str
    bound: Mapping[ScopeKind, str]
    default_graph: str | None = None
    error: str | None = None

    @property
    def kind(self) -> ScopeKind | None:
        """The kind of its address, if it has exactly one."""
        return next(iter(self.bound)) if len(self.bound) == 1 else None


@dataclass(frozen=True)
class Alias:
    """A short name for a stored query of a server. `args` are the parameters of the positional arguments."""

    name: str
    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: TextFormat | None = None


@dataclass(frozen=True)
class Config:
    """The settings. Every member has a default."""

    actor: str | None = None
    store: str | None = None
    server: str | None = None
    default_graph: str | None = None
    output: TextFormat = "table"
    table_max_column_width: int = 80
    table_cell_layout: CellLayout = "truncate"
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)


def load_config(ctx: typer.Context) -> Config:
    """Return the settings, read at the first call and cached in the context of the command."""
    if _CACHE_KEY not in ctx.meta:
        ctx.meta[_CACHE_KEY] = read_config(config_path(os.environ))
    return cast(Config, ctx.meta[_CACHE_KEY])


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the settings file.

    >>> str(config_path({"OMNIGRAPH_HOME": "/etc/omnigraph"}))
    '/etc/omnigraph/config.yaml'
    """
    return settings_directory(environment) / "config.yaml"


def settings_file_name() -> str:
    """Return the name of the settings file in messages: its path if `$OMNIGRAPH_HOME` is set, else the default."""
    named = os.environ.get("OMNIGRAPH_HOME")
    return str(config_path(os.environ)) if named else "~/.omnigraph/config.yaml"


def settings_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of the settings and the credentials."""
    home = environment.get("OMNIGRAPH_HOME")
    return Path(home) if home else Path.home() / ".omnigraph"


def read_config(path: Path) -> Config:
    """Read the settings from a file. A missing file means the defaults.

    Prints a warning for each unknown key. Raises `InvalidInput` if the file is not YAML or has an invalid value. An
    invalid profile is an error only where it is used.
    """
    try:
        text = read_source(str(path))
    except NotFound:
        return Config()
    document = parse_sections(text, path)
    document.warn_unknown_keys(_SECTIONS)
    defaults = document.section("defaults", _DEFAULTS)
    found = Config(
        actor=document.section("operator", ("actor",)).text("actor"),
        store=defaults.text("store"),
        server=defaults.text("server"),
        default_graph=defaults.text("default_graph"),
        output=cast(TextFormat, defaults.choice("output", get_args(TextFormat)) or Config.output),
        table_max_column_width=defaults.number("table_max_column_width") or Config.table_max_column_width,
        table_cell_layout=cast(
            CellLayout,
            defaults.choice("table_cell_layout", get_args(CellLayout)) or Config.table_cell_layout,
        ),
        servers={name: _server(part) for name, part in document.section("servers").sections(("url",))},
        clusters={
            name: part.required_text("root")
            for name, part in document.section("clusters").sections(("root",))
        },
        profiles={
            name: _profile(name, part)
            for name, part in document.section("profiles").sections((*_SCOPES, "default_graph"))
        },
        aliases={name: _alias(name, part) for name, part in document.section("aliases").sections(_ALIAS)},
    )
    for other in ("server", "default_graph"):
        if found.store is not None and getattr(found, other) is not None:
            raise InvalidInput(f"{path}: defaults.store and defaults.{other} exclude each other")
    return found


def _server(part: Section) -> str:
    from omnigraph.client.entry import check_url

    url = part.required_text("url")
    try:
        return check_url(url)
    except InvalidInput as error:
        raise InvalidInput(f"{part.path}: {part.name}.url: {error.message}") from error


def _profile(name: str, part: Section) -> Profile:
    bound = {kind: value for kind in _SCOPES if (value := part.text(kind)) is not None}
    graph = part.text("default_graph")
    error = None
    if len(bound) != 1:
        error = f"profile '{name}' must bind exactly one of {', '.join(_SCOPES)}"
    elif graph is not None and "store" in bound:
        error = f"profile '{name}' binds a store, which is a single graph: default_graph does not apply"
    return Profile(name, bound, graph, error)


def _alias(name: str, part: Section) -> Alias:
    args, params = part.members.get("args"), part.section("params").members
    if args is None:
        args = []
    if not isinstance(args, list) or not all(isinstance(item, str) and item for item in args):
        raise Section(part.path, f"{part.name}.args", {}).invalid("must be a list of names", args)
    for twice in {item for item in args if args.count(item) > 1}:
        raise InvalidInput(f"{part.path}: {part.name}.args names `{twice}` twice")
    format_ = cast("TextFormat | None", part.choice("format", get_args(TextFormat)))
    return Alias(
        name,
        part.required_text("server"),
        part.required_text("query"),
        part.text("graph"),
        tuple(args),
        params,
        format_,
    )
