"""The branches of a graph that a server has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.branches import Branches
from omnigraph.api.commits import At, Branch
from omnigraph.api.merges import Merged, Resolve
from omnigraph.client.request_names import segment, state_of
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, plain

if TYPE_CHECKING:
    from omnigraph.client.server_decisions import Acting
    from omnigraph.client.transport import Transport


class RemoteBranches(Branches):
    """The branches of a graph; each call is one request."""

    def __init__(self, transport: Transport, acting: Acting) -> None:
        self._transport = transport
        self._acting = acting

    def list(self) -> list[str]:
        """Names of all branches, sorted."""
        return self._transport.call("GET", "/branches", lambda found: decode(list[str], found["branches"]))

    def create(self, name: str, source: str = "main", *, at: At = None, actor: str | None = None) -> Branch:
        """Make a branch at another's head, or at a commit or moment; see `Branches.create`."""
        self._acting.check(actor)
        state = state_of(source, at)
        state.pop("branch", None)
        body = {"name": require_text("branch", name), "from": source, **state}
        return self._transport.call("POST", "/branches", partial(decode, Branch), body=body, writes=True)

    def delete(self, name: str) -> None:
        """Delete a branch; its name is free at once."""
        path = f"/branches/{segment(require_text('branch', name))}"
        self._transport.call("DELETE", path, lambda found: found["name"], writes=True)

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        delete_source: bool = False,
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int], None] | None = None,  # noqa: ARG002 - servers do not tell
    ) -> Merged:
        """Bring what a branch did into another, as one commit; see `Branches.merge`."""
        self._acting.check(actor, message=message, if_commit=if_commit)
        body = {
            "source": require_text("branch", source),
            "target": require_text("branch", into),
            "delete_branch": delete_source,
            "resolve": plain(resolve),
            "dry_run": dry_run,
            "message": message,
            "if_commit": if_commit,
        }
        return self._transport.call(
            "POST", "/branches/merge", partial(decode, Merged), body=body, writes=not dry_run
        )
