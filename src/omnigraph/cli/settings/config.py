"""The operator's own settings, from ``config.yaml`` in ``~/.omnigraph`` or ``$OMNIGRAPH_HOME``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import typer

from omnigraph.cli.settings.sections import Section, parse_sections
from omnigraph.cli.source_files import read_source
from omnigraph.errors import InvalidInput, NotFound

TextFormat: TypeAlias = Literal["table", "kv", "csv", "jsonl", "json"]
CellLayout: TypeAlias = Literal["truncate", "wrap"]
ScopeKind: TypeAlias = Literal["server", "cluster", "store"]

_KEPT = "omnigraph.config"
_SECTIONS = ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
_SCOPES: tuple[ScopeKind, ...] = get_args(ScopeKind)
_DEFAULTS = ("output", "table_max_column_width", "table_cell_layout", "server", "default_graph", "store")
_ALIAS = ("server", "graph", "query", "args", "params", "format")


@dataclass(frozen=True)
class Profile:
    """A named scope. One that binds nothing, or several things, has an `error` and cannot be used."""

    name: str
    bound: Mapping[ScopeKind, str]
    default_graph: str | None = None
    error: str | None = None

    @property
    def kind(self) -> ScopeKind | None:
        """What it binds, when that is one thing."""
        return next(iter(self.bound)) if len(self.bound) == 1 else None


@dataclass(frozen=True)
class Alias:
    """A stored query of a server under a name of the operator's; `args` name what stands behind it."""

    name: str
    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: TextFormat | None = None


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
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)


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
    return home_of(environment) / "config.yaml"


def settings_name() -> str:
    """What messages call the file of the settings: the one that the environment names, else the usual one."""
    named = os.environ.get("OMNIGRAPH_HOME")
    return str(config_path(os.environ)) if named else "~/.omnigraph/config.yaml"


def home_of(environment: Mapping[str, str]) -> Path:
    """The folder of everything that is the operator's own."""
    home = environment.get("OMNIGRAPH_HOME")
    return Path(home) if home else Path.home() / ".omnigraph"


def read_config(path: Path) -> Config:
    """The settings of a file; those of one that is not there are the defaults.

    Keys that mean nothing are warned of. Raises `InvalidInput` for what is not YAML, and for values that cannot
    be meant; a profile that cannot be meant says so where it is used.
    """
    try:
        text = read_source(str(path))
    except NotFound:
        return Config()
    document = parse_sections(text, path)
    document.warn_of_others(_SECTIONS)
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
            name: part.needed("root") for name, part in document.section("clusters").sections(("root",))
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

    url = part.needed("url")
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
        error = f"profile '{name}' binds a store, which is one graph already: default_graph does not apply"
    return Profile(name, bound, graph, error)


def _alias(name: str, part: Section) -> Alias:
    args, params = part.members.get("args"), part.section("params").members
    if args is None:
        args = []
    if not isinstance(args, list) or not all(isinstance(item, str) and item for item in args):
        raise Section(part.path, f"{part.name}.args", {}).wrong("must be a list of names", args)
    for twice in {item for item in args if args.count(item) > 1}:
        raise InvalidInput(f"{part.path}: {part.name}.args names `{twice}` twice")
    format_ = cast("TextFormat | None", part.choice("format", get_args(TextFormat)))
    return Alias(
        name, part.needed("server"), part.needed("query"), part.text("graph"), tuple(args), params, format_
    )
