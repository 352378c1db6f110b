"""Configuration directories of clusters for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from omnigraph.cluster.applying.apply import apply
from omnigraph.cluster.applying.observe import import_state
from omnigraph.cluster.diagnostics import Diagnostic
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.reports import ApplyReport, Report

SCHEMA = "node Person { name: String @key  age: I32? }\n"
WIDER = "node Person { name: String @key  age: I32?  town: String? }\n"
QUERY = "query all() { match { $p: Person } return { $p.name as name } order { name asc } }\n"
OLDER = "query all() { match { $p: Person  $p.age > 40 } return { $p.name as name } order { name asc } }\n"
HIRE = "query hire($n: String) { insert Person { name: $n } }\n"
POLICY: dict[str, Any] = {
    "version": 1,
    "groups": {"team": ["ann", "bob"]},
    "rules": [
        {"id": "team", "allow": {"actors": {"group": "team"}, "actions": ["read", "change", "invoke_query"]}}
    ],
}
LISTING: dict[str, Any] = {
    "version": 1,
    "groups": {"team": ["ann"]},
    "rules": [{"id": "list", "allow": {"actors": {"group": "team"}, "actions": ["graph_list"]}}],
}
CONFIG: dict[str, Any] = {
    "version": 1,
    "metadata": {"name": "company"},
    "providers": {"embedding": {"default": {"kind": "mock"}}},
    "graphs": {"team": {"schema": "team.pg", "queries": "queries/", "embedding_provider": "default"}},
    "policies": {
        "base": {"file": "base.policy.yaml", "applies_to": ["team"]},
        "server": {"file": "server.policy.yaml", "applies_to": ["cluster"]},
    },
}


@dataclass(frozen=True)
class ClusterFolder:
    """A configuration directory, and the options of its storage."""

    path: Path
    options: dict[str, str]
    root: str

    @property
    def storage(self) -> ClusterStorage:
        return ClusterStorage.at(self.root, self.options)

    def write(self, name: str, content: Any) -> None:
        """Write a file: text as it is, anything else as YAML."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")

    def configure(self, **members: Any) -> None:
        """Write `cluster.yaml` with members replaced; None leaves one out."""
        document = {**CONFIG, **members}
        if self.root != str(self.path):
            document["storage"] = self.root
        self.write("cluster.yaml", {name: value for name, value in document.items() if value is not None})

    def start(self) -> ApplyReport:
        """Import and apply."""
        imported = import_state(self.path, self.options)
        assert imported.ok, imported.diagnostics
        report = apply(self.path, self.options, actor="ann")
        assert report.ok, report.diagnostics
        assert report.converged
        return report


def write_cluster(
    path: Path, root: str | None = None, options: dict[str, str] | None = None
) -> ClusterFolder:
    """Write a valid configuration with one graph, one query, two policies and a provider."""
    folder = ClusterFolder(path, options or {}, root or str(path))
    folder.write("team.pg", SCHEMA)
    folder.write("queries/all.gq", QUERY)
    folder.write("base.policy.yaml", POLICY)
    folder.write("server.policy.yaml", LISTING)
    folder.configure()
    return folder


def codes(report: Report) -> list[str]:
    """Return the codes of the diagnostics of a report."""
    return [item.code for item in report.diagnostics]


def find(report: Report, code: str) -> Diagnostic:
    """Return the only diagnostic with a code."""
    found = [item for item in report.diagnostics if item.code == code]
    assert len(found) == 1, report.diagnostics
    return found[0]
