"""Selection of the commits whose data a copy needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from omnigraph.graph.history import ancestors_by_distance, get_commit
from omnigraph.maintain.retention import MergeBases
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, TagEntry


@dataclass(frozen=True, slots=True)
class Selection:
    """Commits to copy, and the table versions that they pin.

    `pins` has by path the versions, each with whether the head of a branch needs it. The data of other versions may
    have been removed by garbage collection. `recorded` has the digests of the files that the commits introduced, as
    the commits hold them.
    """

    commits: tuple[str, ...] = ()
    pins: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    recorded: tuple[str, ...] = ()


class _Selecting:
    def __init__(self, copied: Iterable[CommitRecord]) -> None:
        self._copied = {(pin.path, pin.version) for commit in copied for pin in commit.tables.values()}
        self.commits: dict[str, None] = {}
        self.pins: dict[str, dict[int, bool]] = {}
        self.recorded: set[str] = set()

    def add(self, commit: CommitRecord, *, required: bool) -> None:
        self.commits[commit.id] = None
        if commit.files:
            self.recorded.add(commit.files)
        for pin in commit.tables.values():
            if (pin.path, pin.version) in self._copied:
                continue
            versions = self.pins.setdefault(pin.path, {})
            versions[pin.version] = required or versions.get(pin.version, False)

    def result(self) -> Selection:
        return Selection(tuple(self.commits), self.pins, tuple(self.recorded))


def select_commits(
    manifest: Manifest,
    view: ManifestView,
    heads: Sequence[HeadRecord],
    tags: Iterable[TagEntry] = (),
    *,
    since: str | None = None,
    history: bool = True,
    is_copied: Callable[[str], bool] = lambda _: False,
    copied_heads: Sequence[CommitRecord] = (),
) -> Selection:
    """Select the commits of some branches and tags whose data has to be copied.

    These are the heads, the tagged commits and their ancestors, without proper ancestors of the commit `since`, and
    without history only the heads and the tagged commits. The merge bases of the branches belong to them, so that
    the copy can merge. The walk does not pass commits for which `is_copied` is true. `copied_heads` are the heads
    and the tagged commits of the copy: all of their data is there.
    """
    chosen = _Selecting(copied_heads)
    get = partial(get_commit, manifest, view)
    before = _proper_ancestors(manifest, view, since)
    done = {commit.id for commit in copied_heads}
    # A head does not hold the digests of its commit, the log does.
    ids = chain((head.commit.id for head in heads), (tag.commit for tag in tags))
    new_heads = {id_: get(id_) for id_ in ids if id_ not in done}
    for commit in new_heads.values():
        # Also if the commit was copied: its data may have been removed from the copy since.
        chosen.add(commit, required=True)
    if history:
        queue = list(new_heads.values())
        seen = {*new_heads, *done}
        while queue:
            commit = queue.pop()
            if is_copied(commit.id):
                continue
            if commit.id not in before:
                chosen.add(commit, required=False)
            for parent in (commit.parent, commit.merged_parent):
                if parent is not None and parent not in seen and parent not in before:
                    seen.add(parent)
                    queue.append(get(parent))
    if before:
        for base in MergeBases(manifest).of(view, heads):
            if not is_copied(base.id):
                chosen.add(base, required=False)
    return chosen.result()


def _proper_ancestors(manifest: Manifest, view: ManifestView, since: str | None) -> frozenset[str]:
    if since is None:
        return frozenset()
    get = partial(get_commit, manifest, view)
    return frozenset(item.id for _, item in ancestors_by_distance(get, get(since))) - {since}
