"""`omnigraph help`: the help of a command, or of a topic that concerns several commands."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from omnigraph.cli.render.output import print_line
from omnigraph.errors import InvalidInput

TOPICS: Final = {
    "addressing": """\
The graph of a command: give one of
  URI or --store URI         a folder, or s3://bucket/folder
  --server NAME|URL          a server, with --graph ID
  --profile NAME             a profile of your settings, else $OMNIGRAPH_PROFILE
Without any, defaults.server or defaults.store of the settings apply.""",
    "states": """\
Names of a state, wherever a commit is named:
  01M7F7J2SC                 a commit, by the first characters of its id, at least 4
  v1                         a tag
  main, review               the head of a branch
  HEAD, HEAD~2, review~1     commits before a head
  v1^2                       the commit that a merge merged
  main@{2026-05-04T12:00Z}   the state of a branch at a time
  main@{7}                   the state with this manifest version""",
    "queries": """\
A query matches patterns and returns columns:
  match { $p: Person { name: "Ann" }  $p knows $f  $f.age > 30 }
  return { $f.name, $f.age as age }  order { age desc }  limit 10
A mutation is one commit:
  insert Person { name: "Ann", age: 30 }
  update Person set { age: 31 } where name = "Ann"
  delete Person where age is null
Parameters need a declaration: query older($n: I32) { match { … } return { … } }""",
    "formats": """\
Formats of `query` and `shell` (--format):
  table, kv, markdown        for people; a table is fitted to a terminal
  json, jsonl, csv           for programs; --json is --format json
  arrow, parquet             with types, to --out FILE or a pipe""",
    "environment": """\
  OMNIGRAPH_HOME             folder of config.yaml and credentials; default ~/.omnigraph
  OMNIGRAPH_PROFILE          profile that addresses the graph
  OMNIGRAPH_BEARER_TOKEN     token for servers; OMNIGRAPH_TOKEN_<NAME> for one server
  OMNIGRAPH_PAGER, PAGER     program that shows long output; empty for none
  NO_COLOR, FORCE_COLOR      no colours; colours everywhere
  AWS_*                      credentials, region and endpoint of s3:// storage""",
    "exit-codes": """\
  0     success
  1     a failure: a refused request, a reported error, an unreadable file
  2     the command line is wrong
  4     the branch is not at the commit that --if-commit requires
  130   interrupted""",
}


def help_command(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC|COMMAND]", help="A topic, or the words of a command."),
    ] = None,
) -> None:
    """Print the help of a command or a topic. Without an argument, list the topics."""
    if not words:
        print_line(
            "omnigraph help COMMAND prints the help of a command; omnigraph --help lists the commands."
        )
        print_line("Topics: " + ", ".join(TOPICS))
        return
    topic = TOPICS.get(" ".join(words))
    if topic is not None:
        print_line(topic)
        return
    root = ctx.find_root()
    command = root.command
    context = root
    for word in words:
        found = command.get_command(context, word) if hasattr(command, "get_command") else None
        if found is None:
            from omnigraph.lang.suggestions import suggestion

            known = [*TOPICS, *getattr(root.command, "commands", ())]
            raise InvalidInput(
                f"there is no topic or command `{' '.join(words)}`",
                hint=suggestion(words[0], known) or f"the topics are {', '.join(TOPICS)}",
            )
        context = found.make_context(word, [], parent=context, resilient_parsing=True)
        command = context.command
    print_line(command.get_help(context).rstrip())
