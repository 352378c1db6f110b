"""Typed access to the members of a parsed YAML document, with a diagnostic for each problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from omnigraph.cluster.addresses import RESOURCE_ID
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.lang.suggestions import did_you_mean

_RESERVED: Final = frozenset({"apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings"})


class Findings:
    """Collects the diagnostics of one reading of a configuration, so that one run reports all of them."""

    def __init__(self) -> None:
        self.recorded: list[Diagnostic] = []

    def fail(self, code: str, path: str, message: str) -> None:
        """Record an error."""
        self.recorded.append(error(code, path, message))

    def mapping(self, path: str, value: Any, known: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Return a mapping with text keys. Unknown members are errors and left out. Absent means empty."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(
                "invalid_cluster_yaml", path or "cluster.yaml", f"expected a mapping, got {_kind(value)}"
            )
            return {}
        found: dict[str, Any] = {}
        for key, item in value.items():
            place = f"{path}.{key}" if path else str(key)
            if not isinstance(key, str):
                self.fail(
                    "invalid_cluster_yaml", place, f"expected a text key, got {key!r}: put it in quotes"
                )
            elif known is None or key in known:
                found[key] = item
            elif key in _RESERVED:
                self.fail(
                    "future_phase_field", place, f"`{key}` is reserved and has no effect yet: remove it"
                )
            elif key == "streaming":
                self.fail(
                    "removed_streaming_declaration",
                    place,
                    "`streaming` is no longer declared: every graph accepts streams, remove the member",
                )
            else:
                self.fail(
                    "invalid_cluster_yaml", place, f"unknown member '{key}'{did_you_mean(key, list(known))}"
                )
        return found

    def resources(self, path: str, value: Any) -> Mapping[str, Any]:
        """Return a mapping whose keys are ids of resources. Invalid ids are errors and left out."""
        found: dict[str, Any] = {}
        for name, item in self.mapping(path, value).items():
            if RESOURCE_ID.match(name):
                found[name] = item
            else:
                self.fail(
                    "invalid_resource_id",
                    f"{path}.{name}",
                    f"'{name[:80]}' is not an id: a letter or _, then letters, digits, _ and -",
                )
        return found

    def text(self, path: str, value: Any) -> str | None:
        """Return a text that is not blank; None after an error, or if it is absent."""
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.fail("invalid_cluster_yaml", path, f"expected text, got {_kind(value)}")
            return None
        return value

    def texts(self, path: str, value: Any) -> list[str]:
        """Return a list of texts."""
        if not isinstance(value, list):
            self.fail("invalid_cluster_yaml", path, f"expected a list, got {_kind(value)}")
            return []
        found = (self.text(f"{path}.{number}", item) for number, item in enumerate(value))
        return [item for item in found if item is not None]


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return repr(value)[:80] if isinstance(value, bool | int | float | str) else type(value).__name__
