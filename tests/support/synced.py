"""What a program made below a folder, and what of it would survive a power failure, by its system calls.

strace writes down every call that makes, fills, renames or syncs a file; this replays them. Content lasts when it
was synced after the last write to it, a name when the folder that holds it was synced after the name was made.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.waiting import HANG
from tests.support.workers import ROOT

_WRITES: Final = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "copy_file_range")
_NAMES: Final = (
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
)
CALLS: Final = ("openat", "fsync", "fdatasync", "rmdir", *_NAMES, *_WRITES)

_CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_HANDLE = re.compile(r"^\d+<([^>]*)>")
_OPENED = re.compile(r"= \d+<([^>]*)>\s*$")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that succeeded: its name, the paths it names, and the file behind its first handle."""

    name: str
    paths: list[str]
    handle: str | None
    text: str


@dataclass
class Disk:
    """Files and names below a folder, and whether they would be there after a power failure."""

    root: str
    # Every file or folder that the program made or changed; True once its content was synced.
    content: dict[str, bool] = field(default_factory=dict)
    names: dict[str, bool] = field(default_factory=dict)
    syncs: int = 0

    def apply(self, call: Call) -> None:
        """Take one call into account."""
        if call.name == "openat":
            if call.handle is not None and "O_CREAT" in call.text and self._is_ours(call.handle):
                if call.handle not in self.content:
                    self.names[call.handle] = False
                self.content[call.handle] = False
        elif call.name in _WRITES:
            if call.handle is not None and self._is_ours(call.handle):
                self.content[call.handle] = False
        elif call.name in ("fsync", "fdatasync"):
            if call.handle is not None:
                self._sync(call.handle)
        else:
            self._name(call)

    def _sync(self, path: str) -> None:
        if not self._is_ours(path) and path != str(Path(self.root).parent):
            return
        self.syncs += 1
        if path in self.content:
            self.content[path] = True
        for name in self.names:
            if str(Path(name).parent) == path:
                self.names[name] = True

    def _name(self, call: Call) -> None:
        if not call.paths or not self._is_ours(call.paths[-1]):
            return
        target = call.paths[-1]
        if call.name.startswith("mkdir"):
            self.names[target] = False
        elif call.name.startswith(("unlink", "rmdir")):
            self.names.pop(target, None)
            self.content.pop(target, None)
        else:
            self.names[target] = False
            self.content[target] = self.content.get(call.paths[0], True)
            if call.name.startswith("rename"):
                self.names.pop(call.paths[0], None)
                self.content.pop(call.paths[0], None)

    def lost(self) -> list[str]:
        """What a power failure could take now."""
        found = [f"the content of {self._short(path)}" for path, synced in self.content.items() if not synced]
        found += [f"the name {self._short(path)}" for path, synced in self.names.items() if not synced]
        return sorted(found)

    def made(self) -> list[str]:
        """Everything that is new, below the root."""
        return sorted(self._short(path) for path in self.names)

    def _is_ours(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def _short(self, path: str) -> str:
        return path.removeprefix(self.root).lstrip("/")


def trace(command: Sequence[str], log: Path) -> list[Call]:
    """Run a program to its end and give its calls in the order in which they were done."""
    options = ["-f", "-y", "-z", "-qq", "--seccomp-bpf", "-s", "256", "-e", "signal=none"]
    subprocess.run(
        ["strace", *options, "-e", f"trace={','.join(CALLS)}", "-o", str(log), *command],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=HANG,
    )
    return list(read_calls(log.read_text().splitlines()))


def read_calls(lines: Iterable[str]) -> Iterator[Call]:
    """The calls that strace wrote down; one that was interrupted by another thread's is put together again."""
    begun: dict[str, str] = {}
    for line in lines:
        resumed = _RESUMED.match(line)
        if resumed is not None:
            before = begun.pop(resumed["pid"], "")
            yield _call(resumed["name"], before + resumed["rest"])
            continue
        found = _CALL.match(line)
        if found is None:
            continue
        if found["rest"].endswith(_UNFINISHED):
            begun[found["pid"]] = found["rest"].removesuffix(_UNFINISHED)
        else:
            yield _call(found["name"], found["rest"])


def _call(name: str, rest: str) -> Call:
    handle = _OPENED.search(rest) if name == "openat" else _HANDLE.match(rest)
    paths = _TEXT.findall(rest) if name in _NAMES else []
    return Call(name, paths, None if handle is None else handle.group(1), rest)
