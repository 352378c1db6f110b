"""The table of subcommands, and a command group that imports the module of a subcommand only when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True)
class Entry:
    """A subcommand: its module below `cli.commands`, the attribute there, and its line in ``omnigraph --help``.

    The attribute is a function, or a `typer.Typer` for a group of commands. `global_options` says that the help of
    the command ends with a reference to the global options.
    """

    name: str
    module: str
    attribute: str
    summary: str
    hidden: bool = False
    global_options: bool = True


COMMANDS = (
    Entry("init", "init", "init", "Create a graph with a schema and a first, empty commit."),
    Entry("load", "data.load", "load", "Load records atomically, as one commit."),
    Entry(
        "ingest",
        "data.load",
        "ingest",
        "Load JSON records, which may span several lines. Deprecated: use `load`.",
        hidden=True,
    ),
    Entry("mutate", "data.mutate", "mutate", "Run a mutation atomically, as one commit."),
    Entry("change", "data.mutate", "mutate", "Run a mutation atomically, as one commit.", hidden=True),
    Entry(
        "query",
        "data.query",
        "query",
        "Run a query on one snapshot: the newest state of a branch, or the state of a commit.",
    ),
    Entry(
        "read",
        "data.query",
        "query",
        "Run a query on one snapshot: the newest state of a branch, or the state of a commit.",
        hidden=True,
    ),
    Entry(
        "shell",
        "data.shell",
        "shell",
        "Query a graph interactively. Input that is not a terminal is a script, which ends at the first error.",
    ),
    Entry(
        "explain",
        "data.explain",
        "explain",
        "Print the plan of a query: scans, traversals, and why they were chosen.",
    ),
    Entry(
        "status",
        "data.status",
        "status",
        "Print the address, the newest commit, the numbers of nodes, edges, branches and tags of a graph.",
    ),
    Entry(
        "get",
        "data.get",
        "get",
        "Print a node or edge with all its properties. Fails if there is none with this id.",
    ),
    Entry(
        "export",
        "data.export",
        "export",
        "Export a state of the graph as graph records, one JSON line each, in a deterministic order.",
    ),
    Entry(
        "alias",
        "data.alias",
        "alias",
        "Run a stored query by its alias in your settings. Stored mutations are refused.",
        global_options=False,
    ),
    Entry("blob", "data.blob", "blob_commands", "Read Blob values."),
    Entry("branch", "history.branch", "branch_commands", "Create, list, merge and delete branches."),
    Entry(
        "tag",
        "history.tag",
        "tag_commands",
        "Create, list and delete tags. A tag is a name for a commit, and keeps its data.",
    ),
    Entry(
        "log",
        "history.log",
        "log",
        "Print the commits of a branch, newest first: short id, time, actor, operation, branch and message.",
    ),
    Entry(
        "history",
        "history.entity_history",
        "history",
        "Print the versions of a node or edge, newest first: each commit that changed it, and what it changed.",
    ),
    Entry(
        "blame",
        "history.entity_history",
        "blame",
        "Print for each property of a node or edge its value, and the commit that set it.",
    ),
    Entry("commit", "history.commit", "commit_commands", "List commits, and show a commit and its changes."),
    Entry("changes", "history.changes", "change_commands", "Read the change feed of a branch."),
    Entry(
        "diff",
        "history.diff",
        "diff",
        "Print the changes from state A to state B: nodes before edges, by type and id.",
    ),
    Entry(
        "revert",
        "history.revert",
        "revert",
        "Revert one commit of a branch with a new commit. Later commits are kept.",
    ),
    Entry(
        "snapshot",
        "data.snapshot",
        "snapshot",
        "Print each type of a branch with its dataset version and its number of entities.",
    ),
    Entry(
        "optimize",
        "maintenance.optimize",
        "optimize",
        "Compact the tables of a branch and update its indexes, as one commit. "
        "No commit is made if nothing changes.",
    ),
    Entry(
        "verify",
        "maintenance.verify",
        "verify",
        "Check that a graph in storage is complete and unaltered. Damage ends the command with exit code 1.",
    ),
    Entry(
        "repair",
        "maintenance.repair",
        "repair",
        "Roll forward or discard interrupted bulk writes. Without --confirm, only list them.",
    ),
    Entry(
        "cleanup",
        "maintenance.cleanup",
        "cleanup",
        "Garbage collection: remove files that no retained commit needs.",
    ),
    Entry(
        "du",
        "maintenance.du",
        "du",
        "Print the storage of each type: data, indexes, and the records of versions. Files of all branches count.",
    ),
    Entry(
        "settings",
        "maintenance.graph_settings",
        "settings_commands",
        "Show and change the settings of a graph.",
    ),
    Entry(
        "backup",
        "maintenance.backup",
        "backup",
        "Copy a graph to another place, or bring an earlier backup there up to date.",
    ),
    Entry(
        "restore",
        "maintenance.backup",
        "restore",
        "Copy a backup into an empty place, as a graph that can be written.",
    ),
    Entry("clone", "maintenance.backup", "clone", "Create a new graph from one branch of another graph."),
    Entry(
        "lint",
        "lint",
        "lint",
        "Check query files against the current schema of a graph, or against a schema file.",
    ),
    Entry(
        "embed",
        "data.embed",
        "embed_commands",
        "Compute the missing embeddings of the records in a file, from the texts of their properties.",
        global_options=False,
    ),
    Entry("schema", "schema", "schema_commands", "Show, infer, check, plan and apply schemas."),
    Entry(
        "queries",
        "serving.queries",
        "query_commands",
        "List and validate the stored queries of a server configuration.",
    ),
    Entry(
        "policy",
        "serving.policy",
        "policy_commands",
        "Validate, test and explain a policy bundle (access control).",
    ),
    Entry(
        "pipeline",
        "pipeline",
        "pipeline_commands",
        "Pipelines as files: sources, views, targets, quality rules and audits.",
    ),
    Entry(
        "cluster",
        "cluster",
        "cluster_commands",
        "Declare graphs, queries and policies in cluster.yaml, plan the changes and apply them.",
    ),
    Entry("fmt", "fmt", "fmt", "Format schema and query files in place.", global_options=False),
    Entry(
        "serve",
        "serving.serve",
        "serve",
        "Serve graphs over HTTP until the process is stopped.",
        global_options=False,
    ),
    Entry(
        "studio",
        "serving.studio",
        "studio",
        "Open the Studio, a web interface, and print its address.",
        global_options=False,
    ),
    Entry(
        "mcp",
        "serving.mcp",
        "mcp",
        "Serve a graph to agents over MCP (Model Context Protocol), on stdin and stdout.",
    ),
    Entry("graphs", "serving.graphs", "graph_commands", "List the graphs of a server."),
    Entry(
        "ps",
        "serving.running",
        "ps",
        "List the running requests of a graph on a server, the oldest first. Needs permission for `admin`.",
    ),
    Entry(
        "cancel",
        "serving.running",
        "cancel",
        "Cancel a running request of a graph on a server. Needs permission for `admin`.",
    ),
    Entry(
        "login",
        "serving.login",
        "login",
        "Store the bearer token of a server in the credentials file, which only you can read.",
        global_options=False,
    ),
    Entry(
        "logout",
        "serving.login",
        "logout",
        "Remove the stored token of a server. Succeeds if there is none.",
        global_options=False,
    ),
    Entry("profile", "serving.profile", "profile_commands", "List and show the profiles in your settings."),
    Entry(
        "help",
        "help",
        "help_command",
        "Print the help of a command or a topic. Without an argument, list the topics.",
        global_options=False,
    ),
    Entry(
        "version",
        "version",
        "version",
        "Print the version of omnigraph and the version of the storage format that it writes.",
        global_options=False,
    ),
)


@cache
def load_command(entry: Entry) -> TyperCommand | TyperGroup:
    """Import the module of a subcommand and return the command."""
    # Imported here: it imports the settings, which `omnigraph version` does not need.
    from omnigraph.cli.target import EPILOG

    found = getattr(import_module(f"omnigraph.cli.commands.{entry.module}"), entry.attribute)
    parent = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)
    # With a second command the first one keeps its name.
    parent.callback()(_no_options)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=entry.name)
    else:
        epilog = EPILOG if entry.global_options else None
        parent.command(entry.name, hidden=entry.hidden, epilog=epilog)(found)
    command = get_group(parent).commands[entry.name]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command


def _no_options() -> None: ...


class _Listed(TyperCommand):
    """A subcommand that is known from the table only. It is loaded when its arguments are parsed."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.summary, hidden=entry.hidden, rich_markup_mode="markdown")
        self._entry = entry

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the arguments with the command itself."""
        return load_command(self._entry).make_context(*arguments, **options)


class _LoadedCommands(Mapping[str, TyperCommand | TyperGroup]):
    """The subcommands by name. Reading one loads it."""

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        return load_command(_ENTRIES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


_ENTRIES = {entry.name: entry for entry in COMMANDS}


class TableGroup(TyperGroup):
    """A group with the subcommands of the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Typed as a dictionary that can be changed. The table cannot.
        self.commands = cast(Any, _LoadedCommands())

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature of Click
        """Return the names in the order of the table."""
        return list(_ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature of Click
        """Return the subcommand without importing its module."""
        entry = _ENTRIES.get(cmd_name)
        return _Listed(entry) if entry else None
