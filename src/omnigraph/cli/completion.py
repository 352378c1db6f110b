"""Shell completion of branch names, from the graph that the unfinished command line addresses."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from contextlib import closing, redirect_stderr
from io import StringIO
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import typer

from omnigraph.cli.command_line import hoist_globals
from omnigraph.errors import OmnigraphError

# How long completion waits for a server.
_TIMEOUT_SECONDS = 1.0
# The number of names that a shell is given to choose from.
_MAX_NAMES = 100


def complete_branch(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching branches of the addressed graph.

    The list is empty if no graph is addressed, if it cannot be opened, or if its server does not answer in time.
    """
    # Click stops parsing at an option whose value is missing, so the words are searched directly. Bash splits words
    # at `=` and `:`; join these again.
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    typed = re.sub(r"\s*([=:])\s*", r"\1", typed)
    try:
        words = hoist_globals(shlex.split(typed)[1:])
    except ValueError:
        return []
    server, graph = _value(words, "--server"), _value(words, "--graph")
    if server is not None:
        # A server of an earlier release ignores the prefix.
        found = _with_timeout(lambda: _served_branches(server, graph, incomplete))
        return [name for name in found if name.startswith(incomplete)]
    store = _value(words, "--store")
    stores = [] if store is None else [store]
    if any(item.name == "uri" for item in ctx.command.params):
        stores += [word for word in words if "://" in word or Path(word).is_dir()]
    try:
        return _branches(stores[0], incomplete) if stores else []
    except OmnigraphError:
        # The command line is incomplete. Its errors are reported when the command is run.
        return []


def complete_state(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching names of states: HEAD, and the branches of the addressed graph."""
    heads = ["HEAD"] if "HEAD".startswith(incomplete) else []
    return [*heads, *complete_branch(ctx, incomplete)]


def _value(words: list[str], option: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{option}=")), None)


def _branches(uri: str, prefix: str) -> list[str]:
    from omnigraph.graph.branch_lookup import list_branches
    from omnigraph.graph.repository import Repository
    from omnigraph.store.location import Location
    from omnigraph.store.storage_options import s3_options

    options = None if Location.parse(uri).is_local else s3_options(os.environ)
    with closing(Repository.open(uri, mode="r", options=options)) as repository:
        return list_branches(repository.manifest, prefix, limit=_MAX_NAMES)


def _served_branches(named: str, graph: str | None, prefix: str) -> list[str]:
    from omnigraph.cli.served_graph import choose_graph
    from omnigraph.cli.settings.config import config_path, read_config
    from omnigraph.cli.settings.credentials import token_for
    from omnigraph.cli.settings.graph_address import GraphAddress
    from omnigraph.cli.settings.servers import find_server
    from omnigraph.client.entry import connect

    # Suppress warnings about the settings: they would be printed into the command line that is being typed.
    with redirect_stderr(StringIO()):
        server = find_server(read_config(config_path(os.environ)), named)
    token = token_for(server, os.environ)
    url, id_ = choose_graph(server, GraphAddress("server", named, "--server", graph), token)
    with connect(url, id_, token=token, timeout=_TIMEOUT_SECONDS) as found:
        return found.branches.list(prefix=prefix, limit=_MAX_NAMES)


def _with_timeout(list_branches: Callable[[], list[str]]) -> list[str]:
    """Return the result, or an empty list if the call fails or does not finish in time."""
    answers: SimpleQueue[list[str]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(list_branches())
        except OmnigraphError:
            answers.put([])

    # A daemon thread, so that the process can exit while the call is still running: the shell waits for the exit.
    Thread(target=work, daemon=True).start()
    try:
        return answers.get(timeout=_TIMEOUT_SECONDS)
    except Empty:
        return []
