"""What a shell offers for the name of a branch: those of the graph that the unfinished command line addresses."""

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

from omnigraph.cli.shell import hoist_globals
from omnigraph.errors import OmnigraphError

# Whoever pressed a key does not wait longer for a server.
_PATIENCE = 1.0


def complete_branch(ctx: typer.Context, incomplete: str) -> list[str]:
    """The branches of the graph that is addressed; none without one, or when a server does not answer at once."""
    # The parser gives up where a value is still missing, so the words themselves are looked at. Bash takes them
    # apart at these two signs.
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    typed = re.sub(r"\s*([=:])\s*", r"\1", typed)
    try:
        words = hoist_globals(shlex.split(typed)[1:])
    except ValueError:
        return []
    server, graph = _value(words, "--server"), _value(words, "--graph")
    if server is not None:
        found = _in_time(lambda: _served_branches(server, graph))
        return [name for name in found if name.startswith(incomplete)]
    store = _value(words, "--store")
    stores = [] if store is None else [store]
    if any(item.name == "uri" for item in ctx.command.params):
        stores += [word for word in words if "://" in word or Path(word).is_dir()]
    try:
        return [name for name in _branches(stores[0]) if name.startswith(incomplete)] if stores else []
    except OmnigraphError:
        # Half a command line may mean anything; whoever types it sees errors when it is run.
        return []


def _value(words: list[str], option: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{option}=")), None)


def _branches(uri: str) -> list[str]:
    from omnigraph.graph.repository import Repository
    from omnigraph.store.location import Location
    from omnigraph.store.storage_options import s3_options

    options = None if Location.parse(uri).is_local else s3_options(os.environ)
    with closing(Repository.open(uri, mode="r", options=options)) as repository:
        return list(repository.branches())


def _served_branches(named: str, graph: str | None) -> list[str]:
    from omnigraph.cli.served_graph import choose_graph
    from omnigraph.cli.settings.addresses import Scope
    from omnigraph.cli.settings.config import config_path, read_config
    from omnigraph.cli.settings.credentials import token_for
    from omnigraph.cli.settings.servers import find_server
    from omnigraph.client.entry import connect

    # Warnings about the settings are for commands; between the words of one they would only be in the way.
    with redirect_stderr(StringIO()):
        server = find_server(read_config(config_path(os.environ)), named)
    token = token_for(server, os.environ)
    url, id_ = choose_graph(server, Scope("server", named, "--server", graph), token)
    with connect(url, id_, token=token, timeout=_PATIENCE) as found:
        return found.branches.list()


def _in_time(ask: Callable[[], list[str]]) -> list[str]:
    """What is known after a moment; nothing when the question cannot be answered, or not yet."""
    answers: SimpleQueue[list[str]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except OmnigraphError:
            answers.put([])

    # It does not keep the process: the shell waits for its end.
    Thread(target=work, daemon=True).start()
    try:
        return answers.get(timeout=_PATIENCE)
    except Empty:
        return []
