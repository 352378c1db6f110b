"""`omnigraph cleanup`: give back the space of old versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.render.output import complain, note, say, say_json
from omnigraph.cli.scope import JsonOption, Target, Uri, opened, resolve
from omnigraph.cli.shell import FAILURE
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.maintain.cleanup import CleanupReport


def cleanup(
    ctx: typer.Context,
    uri: Uri = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", help="Keep so many commits of each branch.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="D", help="Keep what was current within 45s, 30m, 12h, 7d, 2w."),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace", metavar="D", help="Spare what is younger; default 1h. Less only if nobody writes."
        ),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Do it, instead of saying what it would do.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Remove the data of old versions that no branch needs any more.

    At least one of --keep and --older-than is needed; with both, a version goes only when it is beyond both.
    Commits stay on record; reading one whose data is gone says so. Without --confirm nothing is removed.
    On storage that is not local, --confirm also needs --yes, or an answer on a terminal.
    """
    target = resolve(ctx, uri)

    from omnigraph.maintain.cleanup import GRACE
    from omnigraph.maintain.cleanup import cleanup as clean
    from omnigraph.maintain.retention import Retention, parse_duration

    policy = Retention.of(keep, older_than)
    spared = GRACE if grace is None else parse_duration(grace)
    described = _describe_policy(keep, older_than)
    if confirm:
        announce(target)
        require_consent(target, json=json)
    else:
        note(
            f"cleanup is destructive — rerun with --confirm. Policy for {target.uri}: {described}",
        )
    with opened(target, "rw" if confirm else "r") as repository:
        report = clean(
            repository, keep=policy.keep, older_than=policy.older_than, grace=spared, confirm=confirm
        )
    if json:
        say_json(_document(target, report))
    else:
        say(f"cleanup {target.uri} ({described}) — {_summary(report)}")
    failed = [item for item in report.datasets if item.error is not None]
    for item in failed:
        complain(StorageError(f"{item.type_key}: {item.error}"))
    if failed:
        raise typer.Exit(FAILURE)


def _describe_policy(keep: int | None, older_than: str | None) -> str:
    parts = []
    if keep is not None:
        parts.append(f"keep {keep} versions")
    if older_than is not None:
        parts.append(f"older than {older_than.strip()}")
    return ", ".join(parts)


def _summary(report: CleanupReport) -> str:
    done = "removed" if report.confirmed else "would remove"
    return (
        f"{done} {report.old_versions_removed} versions ({report.bytes_removed} bytes) "
        f"across {len(report.datasets)} datasets"
    )


def _document(target: Target, report: CleanupReport) -> dict[str, object]:
    age = report.older_than
    return {
        "uri": target.uri,
        "keep_versions": report.keep,
        "older_than_secs": None if age is None else int(age.total_seconds()),
        # Without confirmation the numbers below say what would be removed.
        "confirmed": report.confirmed,
        "datasets": [item.to_json() for item in report.datasets],
        "objects_removed": report.objects_removed,
    }
