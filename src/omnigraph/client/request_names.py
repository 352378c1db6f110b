"""How requests name things: states, commits in headers, names in paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from omnigraph.api.commits import At, state_at
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.graph.argument_checks import require_text
from omnigraph.graph.branch_names import MAIN, no_branch
from omnigraph.protocol.codec import END, IF_COMMIT, decode, plain

if TYPE_CHECKING:
    from omnigraph.client.transport import Transport


def state_of(branch: str, at: At = None) -> dict[str, str]:
    """The members that name a state: a branch, a commit, or a moment on a branch.

    >>> state_of("main", "01J"), state_of("main", datetime(2024, 1, 31, 9, 30))
    ({'snapshot': '01J'}, {'branch': 'main', 'at': '2024-01-31T09:30:00+00:00'})
    """
    require_text("branch", branch)
    named = state_at(at)
    if named is None:
        return {"branch": branch}
    if isinstance(named, datetime):
        return {"branch": branch, "at": moment(named)}
    return {"snapshot": named if isinstance(named, str) else named.commit_id}


def place_of(transport: Transport, branch: str, at: At = None) -> dict[str, str]:
    """The same, of a branch that is there. A request for a commit cannot name one: it is asked about first."""
    found, name = state_of(branch, at), branch.strip()
    if isinstance(state_at(at), str) and name != MAIN:
        known = transport.call("GET", "/branches", lambda answer: decode(list[str], answer["branches"]))
        if name not in known:
            raise no_branch(name, known)
    return found


def params_of(params: Mapping[str, Any] | None) -> Any:
    """The parameters of a query, when they are such; which ones it has is known to the server."""
    from omnigraph.lang.gq.query_parameters import bind_params

    bind_params((), params)
    return plain(params)


def moment(at: datetime) -> str:
    """A moment in ISO 8601; without a zone it is one of UTC, as everywhere in a graph."""
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()


def segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it.

    >>> segment("feature/x"), segment("..")
    ('feature%2Fx', '%2E%2E')
    """
    if not require_text("name", name):
        raise InvalidInput("an empty name is the name of nothing")
    return quote(name, safe="").replace(".", "%2E")


def condition(commit_id: str | None) -> dict[str, str] | None:
    """The header of a write that only happens on top of a commit."""
    if commit_id is None:
        return None
    require_text("if_commit", commit_id)
    if not commit_id.isascii() or not commit_id.isalnum():
        raise InvalidInput(f"{commit_id!r} is not the id of a commit")
    return {IF_COMMIT: commit_id}


def lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks of a text cut anew, each into whole lines, of which there may be many.

    >>> list(lines_of(iter([b"a\\nb", b"b", b"\\n", b"c"])))
    [b'a\\n', b'bb\\n', b'c']
    """
    rest: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest.append(chunk)
            continue
        yield b"".join((*rest, chunk[:end]))
        rest = [chunk[end:]] if end < len(chunk) else []
    if rest:
        yield b"".join(rest)


def lines_to_end(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same without the last line, which says that it is the last; a text without it broke off.

    >>> list(lines_to_end(iter([b"a\\nb", b'b\\n{"end":true}\\n'])))
    [b'a\\n', b'bb\\n']
    """
    held = b""
    for lines in lines_of(chunks):
        if held:
            yield held
        held = lines
    rest = held.removesuffix(END)
    if rest == held or (rest and not rest.endswith(b"\n")):
        raise StorageError("what the server sent broke off before its end", transient=True)
    if rest:
        yield rest


def filter_of(kinds: Any, types: Any, ops: Any) -> Mapping[str, Any]:
    """The parameters that choose changes, when they are such."""
    from omnigraph.api.changes import ChangeFilter

    wanted = ChangeFilter.of(kinds, types, ops)
    parts = {"kind": wanted.kinds, "type": wanted.types, "op": wanted.ops}
    return {name: list(part) for name, part in parts.items() if part}
