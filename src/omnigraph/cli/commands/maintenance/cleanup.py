"""`omnigraph cleanup`: garbage collection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import print_error, print_json, print_line, print_note
from omnigraph.cli.target import GraphTarget, JsonOption, UriArgument, open_graph, resolve_target
from omnigraph.errors import StorageError


def cleanup(
    ctx: typer.Context,
    uri: UriArgument = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", help="Retain the newest N commits of each branch.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="D",
            help="Retain versions that were current within this time: 45s, 30m, 12h, 7d, 2w.",
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="D",
            help="Never remove files younger than this, which readers may be using; default 1h.",
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Remove the files. Without it, only print what would be removed."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Garbage collection: remove files that no retained commit needs.

    At least one of --keep and --older-than is required. With both, a version is removed only if neither retains it.
    Commits stay in the history; reading a commit whose data was removed is an error. Without --confirm nothing is
    removed. With --confirm, a graph that is not local needs --yes, or an answer on a terminal.
    """
    target = resolve_target(ctx, uri)

    from omnigraph.maintain.retention import Retention, parse_duration

    policy = Retention.of(keep, older_than)
    grace_period = None if grace is None else parse_duration(grace)
    described = _describe_policy(keep, older_than)
    if confirm:
        announce(target)
        require_consent(target, json=json)
    else:
        print_note(
            f"cleanup is destructive — rerun with --confirm. Policy for {target.uri}: {described}",
        )
    with open_graph(target, "rw" if confirm else "r") as graph:
        report = graph.cleanup(policy.keep, policy.older_than, confirm, grace=grace_period)
    if json:
        print_json(_document(target, policy.keep, policy.older_than, report))
    else:
        print_line(f"cleanup {target.uri} ({described}) — {_summary(report)}")
    failed = [item for item in report["datasets"] if item["error"] is not None]
    for item in failed:
        print_error(StorageError(f"{item['type_key']}: {item['error']}"))
    if failed:
        raise typer.Exit(FAILURE)


def _describe_policy(keep: int | None, older_than: str | None) -> str:
    parts = []
    if keep is not None:
        parts.append(f"keep {keep} versions")
    if older_than is not None:
        parts.append(f"older than {older_than.strip()}")
    return ", ".join(parts)


def _summary(report: Mapping[str, Any]) -> str:
    done = "removed" if report["confirmed"] else "would remove"
    datasets = report["datasets"]
    versions = sum(item["old_versions_removed"] for item in datasets)
    size = sum(item["bytes_removed"] for item in datasets)
    return f"{done} {versions} versions ({size} bytes) across {len(datasets)} datasets"


def _document(
    target: GraphTarget, keep: int | None, older_than: timedelta | None, report: Mapping[str, Any]
) -> dict[str, object]:
    # Without `confirmed` the report is a preview.
    return {
        "uri": target.uri,
        "keep_versions": keep,
        "older_than_secs": None if older_than is None else int(older_than.total_seconds()),
        **report,
    }
