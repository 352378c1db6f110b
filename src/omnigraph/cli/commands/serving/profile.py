"""`omnigraph profile`: list and show the profiles in the settings."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.settings.config import Config, Profile, ScopeKind, load_config
from omnigraph.cli.settings.graph_address import PROFILE, find_profile, get_profile
from omnigraph.cli.settings.servers import find_server
from omnigraph.cli.target import JsonOption
from omnigraph.errors import InvalidInput

profile_commands = typer.Typer(help="List and show the profiles in your settings.", no_args_is_help=True)


@profile_commands.command("list")
def list_(ctx: typer.Context, json: JsonOption = False) -> None:
    """List the profiles, including invalid ones."""
    config = load_config(ctx)
    active = _active(ctx, config)
    found = [_entry(config, item, active) for item in config.profiles.values()]
    if json:
        print_json(found)
        return
    for item in found:
        name = f"{item['name']} (active)" if item["active"] else item["name"]
        graph = "" if item["default_graph"] is None else f" · graph: {item['default_graph']}"
        text = f"{item['binding']}{graph}" if item["valid"] else f"invalid: {item['error']}"
        print_line(f"{name}  {text}")


@profile_commands.command()
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the profile; default: the active one, or the defaults."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the address that a profile, or the defaults, resolve to."""
    config = load_config(ctx)
    active = _active(ctx, config)
    name = name or active
    kind: ScopeKind | None
    if name is None:
        kind, target = _default(config)
        graph = config.default_graph
    else:
        profile = find_profile(config, name)
        kind, graph = profile.kind, profile.default_graph
        target = None if kind is None else profile.bound[kind]
    shown: dict[str, Any] = {
        "name": name or "(defaults)",
        "scope_kind": kind,
        "target": target,
        "endpoint": _endpoint(config, kind, target),
        "default_graph": graph,
        "output_format": config.output,
    }
    if json:
        print_json(shown)
        return
    for key, value in shown.items():
        print_line(f"{key}: {'null' if value is None else value}")


def _active(ctx: typer.Context, config: Config) -> str | None:
    """Return the name of the active profile. Raises `InvalidInput` if `--profile` names no profile."""
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    if chosen.profile is None:
        return os.environ.get(PROFILE) or None
    return get_profile(config, chosen.profile).name


def _entry(config: Config, profile: Profile, active: str | None) -> dict[str, Any]:
    kind = profile.kind
    target = None if kind is None else profile.bound[kind]
    error = profile.error
    if error is None:
        try:
            _endpoint(config, kind, target)
        except InvalidInput as problem:
            error = problem.message
    return {
        "name": profile.name,
        "binding": ", ".join(f"{key}: {value}" for key, value in profile.bound.items()) or None,
        "scope_kind": "invalid" if kind is None or profile.error is not None else kind,
        "target": target,
        "valid": error is None,
        "error": error,
        "default_graph": profile.default_graph,
        "active": profile.name == active,
    }


def _default(config: Config) -> tuple[ScopeKind | None, str | None]:
    if config.server is not None:
        return "server", config.server
    return (None, None) if config.store is None else ("store", config.store)


def _endpoint(config: Config, kind: ScopeKind | None, target: str | None) -> str | None:
    """Return the URL or path of an address. Raises `InvalidInput` if its server is unknown."""
    if kind is None or target is None:
        return None
    if kind == "server":
        return find_server(config, target).url
    return config.clusters.get(target, target) if kind == "cluster" else target
