"""The cluster commands that write, each as a process of its own, with the cluster that it starts from.

    python -m tests.support.cluster_commands '{"command": "apply", "folder": "…", "options": {}}'

prints ``ACK`` if the command succeeded, or ``REFUSED <code>`` with the code of the first error.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import omnigraph as og
from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.applying.approve import approve
from omnigraph.cluster.applying.live_graphs import observe_graph
from omnigraph.cluster.applying.observe import import_state, refresh
from omnigraph.cluster.applying.rollback import rollback
from omnigraph.cluster.commands import force_unlock
from omnigraph.cluster.diagnostics import ClusterFailure
from omnigraph.cluster.ledger.approvals import read_approvals
from omnigraph.cluster.ledger.history import read_history
from omnigraph.cluster.ledger.intents import read_intents
from omnigraph.cluster.ledger.lock import ClusterLock, acquire_lock, read_lock
from omnigraph.cluster.ledger.state import ClusterState
from omnigraph.cluster.ledger.storage import payload_key
from omnigraph.cluster.reports import Report
from tests.cluster_control.cluster_files import (
    CONFIG,
    HIRE,
    OLDER,
    SCHEMA,
    WIDER,
    ClusterFolder,
    write_cluster,
)

PEOPLE: Final = [{"name": "Ann", "age": 50}, {"name": "Bob", "age": 30}]
SERVER: Final = {"server": CONFIG["policies"]["server"]}
THING: Final = "node Thing { code: String @key }\n"
LOCK_ID: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ACTOR: Final = "ann"
TIMES: Final = {"observed_at", "consumed_at", "created_at", "approval_id", "consumed_by_operation"}


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """What a worker process is asked to do. `uri` is the directory with the configuration."""

    command: str
    uri: str
    options: dict[str, str] = field(default_factory=dict)
    module: ClassVar[str] = "tests.support.cluster_commands"

    def to_argument(self) -> str:
        """The JSON form that the process takes."""
        return json.dumps({"command": self.command, "uri": self.uri, "options": self.options})

    def run(self) -> Report:
        """Run the command in this process."""
        return COMMANDS[self.command].run(Path(self.uri), self.options)


@dataclass(frozen=True)
class Command:
    """A command, and what prepares the cluster that it runs on.

    `repeated` has the codes that the same command may report after the first one has done its work.
    """

    prepare: Callable[[ClusterFolder], object]
    run: Callable[[Path, dict[str, str]], Report]
    repeated: tuple[str, ...] = ()


# --- the clusters that commands start from -----------------------------------------------------------------


def start(cluster: ClusterFolder) -> None:
    """Apply one graph with two rows."""
    cluster.start()
    with og.open(cluster.storage.graph_uri("team"), storage_options=cluster.options) as graph:
        graph.load({"Person": PEOPLE})


def declare_changes(cluster: ClusterFolder) -> None:
    """Declare a new graph, a wider schema, other queries and policies, and no longer the graph `old`."""
    cluster.write("thing.pg", THING)
    old = {"schema": "thing.pg"}
    cluster.configure(graphs={**CONFIG["graphs"], "old": old})
    start(cluster)
    cluster.write("team.pg", WIDER)
    cluster.write("queries/all.gq", OLDER)
    cluster.write("queries/hire.gq", HIRE)
    cluster.configure(graphs={**CONFIG["graphs"], "new": old}, policies=SERVER)


def declare_approved_changes(cluster: ClusterFolder) -> None:
    """As `declare_changes`, and approve the deletion of `old`."""
    declare_changes(cluster)
    assert approve(cluster.path, "graph.old", ACTOR, cluster.options).ok


def drift(cluster: ClusterFolder) -> None:
    """Migrate a graph without the cluster, and lose a payload."""
    start(cluster)
    with og.open(cluster.storage.graph_uri("team"), storage_options=cluster.options) as graph:
        graph.schema.apply(WIDER)
    digest = cluster.storage.read_state().or_empty.digests["query.team.all"]
    cluster.storage.objects.delete(payload_key("query.team.all", digest))


def adopt(cluster: ClusterFolder) -> None:
    """Create the graph without the cluster."""
    og.init(cluster.storage.graph_uri("team"), SCHEMA, storage_options=cluster.options).close()


def change_catalogue(cluster: ClusterFolder) -> None:
    """Apply other queries and policies."""
    start(cluster)
    cluster.write("queries/all.gq", OLDER)
    cluster.write("queries/hire.gq", HIRE)
    cluster.configure(policies=SERVER)
    assert apply(cluster.path, cluster.options, actor=ACTOR).converged


def leave_lock(cluster: ClusterFolder) -> None:
    """Leave the lock of a process that was killed."""
    cluster.start()
    lock = acquire_lock(cluster.storage, "apply")
    left = ClusterLock(LOCK_ID, lock.operation, lock.created_at, lock.pid)
    cluster.storage.objects.put("__cluster/lock.json", left.to_bytes())


COMMANDS: Final = {
    "import": Command(
        adopt,
        lambda folder, options: import_state(folder, options, actor=ACTOR),
        ("state_already_exists",),
    ),
    "first-apply": Command(
        lambda cluster: import_state(cluster.path, cluster.options),
        lambda folder, options: apply(folder, options, actor=ACTOR),
    ),
    "apply": Command(declare_approved_changes, lambda folder, options: apply(folder, options, actor=ACTOR)),
    "approve": Command(declare_changes, lambda folder, options: approve(folder, "graph.old", ACTOR, options)),
    "refresh": Command(drift, lambda folder, options: refresh(folder, options, actor=ACTOR)),
    "rollback": Command(change_catalogue, lambda folder, options: rollback(folder, 2, options, actor=ACTOR)),
    "force-unlock": Command(
        leave_lock,
        lambda folder, options: force_unlock(folder, LOCK_ID, options),
        ("state_lock_missing",),
    ),
}


def prepare(command: str, path: Path, root: str | None = None, options: dict[str, str] | None = None) -> None:
    """Write the cluster that a command starts from."""
    COMMANDS[command].prepare(write_cluster(path, root, options))


def copy_cluster(source: Path, target: Path) -> ClusterFolder:
    """Return a copy of a cluster on disk."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return ClusterFolder(target, {}, str(target))


# --- what must hold ----------------------------------------------------------------------------------------


def remove_left_lock(cluster: ClusterFolder) -> None:
    """Remove the lock of a killed command, after checking that it refuses the next one."""
    held = read_lock(cluster.storage)
    if held is None:
        return
    refused = apply(cluster.path, cluster.options)
    assert [item.code for item in refused.diagnostics if item.severity == "error"] == ["state_lock_held"]
    assert force_unlock(cluster.path, held.lock_id, cluster.options).ok


def look_at_cluster(cluster: ClusterFolder) -> dict[str, Any]:
    """Return everything that must be the same after a command, whether or not it was interrupted before.

    Times and ids are left out, and so is what a recovery adds. Raises `AssertionError` if something is left behind
    or the ledger does not match storage.
    """
    storage = cluster.storage
    stored = storage.read_state()
    state = stored.or_empty
    assert read_lock(storage) is None
    assert read_intents(storage).intents == ()
    entries = read_history(storage, stored.cas)
    assert [entry.revision for entry in entries] == list(range(state.state_revision, 0, -1))
    graphs = {}
    for graph in ("team", "new", "old"):
        live = observe_graph(storage, graph)
        assert live.presence in ("open", "absent"), (graph, live)
        rows = None
        if live.presence == "open" and graph == "team":
            with og.open(storage.graph_uri(graph), "r", storage_options=cluster.options) as found:
                rows = sorted(found.query(ALL).rows(), key=str)
                assert found.verify().ok
        graphs[graph] = (live.presence, live.version, live.source, rows)
    return {"graphs": graphs, "ledger": describe(state), "approvals": len(read_approvals(storage)[0])}


ALL: Final = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } }"


def describe(state: ClusterState) -> dict[str, Any]:
    """Return a ledger without what differs between two runs of the same commands."""
    document: dict[str, Any] = json.loads(state.to_bytes())
    for name in ("state_revision", "recovery_records"):
        del document[name]
    document["approval_records"] = sorted(
        json.dumps({key: value for key, value in item.items() if key not in TIMES}, sort_keys=True)
        for item in document["approval_records"].values()
    )
    for item in document["observations"].values():
        for name in TIMES & item.keys():
            del item[name]
        del item["graph_uri"]
    return document


def main() -> None:
    task = ClusterTask(**json.loads(sys.argv[1]))
    try:
        report = task.run()
    except ClusterFailure as failure:
        failed = failure.diagnostics
    else:
        failed = tuple(item for item in report.diagnostics if item.severity == "error")
    sys.stdout.write(f"REFUSED {failed[0].code} {failed[0].message}\n" if failed else "ACK\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
