"""Runs a program and stops it exactly before its K-th change to a directory tree.

    python tests/support/tracer.py '{"root": "…", "at": 7, "action": "kill", "command": ["…"]}'

Counts, over all threads of the program together, the calls that change what a directory holds: rename, link,
unlink, mkdir and their kin, below `root` and only where they have an effect (making a folder that exists has none).
strace can send a signal at the K-th call too, but it counts separately for every thread and every call, and Lance
hands its writes to whichever thread is free: which cuts were made would be a matter of luck. Here a seccomp filter
stops each of these calls before it happens, in whichever thread, and nothing goes on while they are counted.

`fail` counts the calls that write to files below `root` in place of changes to directories, and lets the K-th fail
with "no space left on device", as on a disk that is full at that moment.

`kill` is SIGKILL: K-1 changes have happened, the K-th has not. `freeze` stops every thread there, reports it, and
goes on when told. Contents need no cut of their own: everything is written aside and then renamed or linked, and a
process that dies keeps what it has written, so between two of these calls every cut leaves the same tree.

Standard output: the program's own lines, and lines of JSON that begin with `@`. Linux on x86-64 and AArch64.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# name: positions of its path arguments; a call that names two changes the second.
_PATHS: Final = {
    "rename": (0, 1),
    "mkdir": (0,),
    "rmdir": (0,),
    "link": (0, 1),
    "unlink": (0,),
    "symlink": (0, 1),
    "truncate": (0,),
    "mkdirat": (1,),
    "unlinkat": (1,),
    "renameat": (1, 3),
    "linkat": (1, 3),
    "symlinkat": (0, 2),
    "renameat2": (1, 3),
}
# Calls whose first argument is the file that they write to.
_WRITES: Final[dict[str, dict[str, int]]] = {
    "x86_64": {"write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296},
    "aarch64": {"write": 64, "writev": 66, "pwrite64": 68, "pwritev": 70},
}
_NUMBERS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "truncate": 76,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "link": 86,
        "unlink": 87,
        "symlink": 88,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "symlinkat": 266,
        "renameat2": 316,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "symlinkat": 36,
        "linkat": 37,
        "renameat": 38,
        "truncate": 45,
        "renameat2": 276,
    },
}
_ARCHITECTURE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_TRACEME, _CONT, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 7, 0x4200, 0x420E
_GETREGSET, _SETREGSET, _GENERAL_REGISTERS, _SYSTEM_CALL = 0x4204, 0x4205, 1, 0x404
# Where the registers of a stopped thread hold the result of a call, and on x86-64 its number.
_RESULT: Final = {"x86_64": 10 * 8, "aarch64": 0}
_X86_CALL: Final = 15 * 8
# Follow forks, clones and execs, stop at filtered calls, and take the program along when the tracer dies.
_OPTIONS: Final = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
_EVENT_SECCOMP: Final = 7
_WALL: Final = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_RET_TRACE, _RET_ALLOW = 0x7FF00000, 0x7FFF0000
_LONGEST_PATH: Final = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _ptrace(request: int, pid: int, address: int | None = None, data: Any = None) -> int:
    result = int(_libc.ptrace(request, pid, address, data))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace {request:#x}: {os.strerror(code)}")
    return result


def _install_filter(numbers: list[int], architecture: int) -> None:
    """Have the kernel stop this process at these calls and at no others."""

    def instruction(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    load, jump_equal, give = 0x20, 0x15, 0x06
    # Another architecture's calls pass; then each number in turn jumps to the last instruction.
    steps = [instruction(load, 0, 0, 4), instruction(jump_equal, 1, 0, architecture)]
    steps += [instruction(give, 0, 0, _RET_ALLOW), instruction(load, 0, 0, 0)]
    for place, number in enumerate(numbers):
        steps.append(instruction(jump_equal, len(numbers) - place, 0, number))
    steps += [instruction(give, 0, 0, _RET_ALLOW), instruction(give, 0, 0, _RET_TRACE)]
    program = _Program(len(steps), b"".join(steps))
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, None, 0, 0) or _libc.prctl(
        _PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the system refuses to filter calls")


def _read_text(pid: int, address: int) -> str:
    """A string in the memory of a stopped process; it may end just before a page that is not there."""
    found = b""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        while len(found) < _LONGEST_PATH and b"\0" not in found:
            to_page_end = 4096 - (address + len(found)) % 4096
            found += memory.read(to_page_end)
    return os.fsdecode(found.split(b"\0", 1)[0])


@dataclass
class Tracer:
    """One traced run."""

    root: str
    at: int
    action: str
    names: dict[int, str]
    main: int = 0
    changes: list[str] = field(default_factory=list)
    killed: bool = False

    def start(self, program: Callable[[], object]) -> None:
        """Start the program in a process of its own, stopped before its first instruction and filtered."""
        self.main = os.fork()
        if self.main == 0:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            _install_filter(sorted(self.names), _ARCHITECTURE[platform.machine()])
            program()
            os._exit(0)
        os.waitpid(self.main, _WALL)
        _ptrace(_SETOPTIONS, self.main, None, _OPTIONS)
        _ptrace(_CONT, self.main)

    def run(self) -> int:
        """Follow every thread to the program's end; gives its exit code, negative for a signal."""
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if not os.WIFSTOPPED(status):
                if pid == self.main:
                    return os.waitstatus_to_exitcode(status)
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == _EVENT_SECCOMP:
                self._count(pid)
                self._go_on(pid)
            elif event or number in (signal.SIGSTOP, signal.SIGTRAP):
                # Threads announce themselves with a stop; a freeze that is over leaves some behind too.
                self._go_on(pid)
            else:
                self._go_on(pid, number)

    def _count(self, pid: int) -> None:
        change = self._change(pid)
        if change is None:
            return
        self.changes.append(change)
        if len(self.changes) != self.at or self.killed:
            return
        if self.action == "fail":
            _fail_call(pid, errno.ENOSPC)
        elif self.action == "kill":
            self.killed = True
            os.kill(self.main, signal.SIGKILL)
        else:
            self._freeze(change)

    def _freeze(self, change: str) -> None:
        os.kill(self.main, signal.SIGSTOP)
        held = []
        # The stop reaches one thread first; once it takes it the others follow, and stay until let go.
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                if os.WSTOPSIG(status) == signal.SIGSTOP and not status >> 16:
                    break
                held.append(pid)
        _ptrace(_CONT, pid, None, signal.SIGSTOP)
        _say({"frozen": change, "pid": self.main})
        sys.stdin.readline()
        os.kill(self.main, signal.SIGCONT)
        for pid in held:
            self._go_on(pid)

    @staticmethod
    def _go_on(pid: int, number: int = 0) -> None:
        try:
            _ptrace(_CONT, pid, None, number)
        except ProcessLookupError:
            return

    def _change(self, pid: int) -> str | None:
        """What the call is about to change below the root, or None when it changes nothing there."""
        info = ctypes.create_string_buffer(88)
        _ptrace(_GET_SYSCALL_INFO, pid, len(info), info)
        number, *arguments = struct.unpack_from("=QQQQQQQ", info.raw, 24)
        name = self.names[number]
        if self.action == "fail":
            return self._written_file(pid, name, arguments[0])
        paths = [_read_text(pid, arguments[place]) for place in _PATHS[name]]
        if not paths[-1].startswith(self.root):
            return None
        there = os.path.lexists(paths[-1])
        makes = name.startswith(("mkdir", "link", "symlink"))
        removes = name.startswith(("unlink", "rmdir"))
        if (makes and there) or (removes and not there):
            return None
        return f"{name} {paths[-1].removeprefix(self.root).lstrip('/')}"

    def _written_file(self, pid: int, name: str, descriptor: int) -> str | None:
        try:
            path = str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
        except OSError:
            return None
        return f"{name} {path.removeprefix(self.root).lstrip('/')}" if path.startswith(self.root) else None


def _fail_call(pid: int, code: int) -> None:
    """Let the call that a thread is stopped at fail with an error code instead of being made."""
    machine = platform.machine()
    registers = ctypes.create_string_buffer(512)
    vector = _Vector(ctypes.addressof(registers), len(registers))
    _ptrace(_GETREGSET, pid, _GENERAL_REGISTERS, ctypes.addressof(vector))
    struct.pack_into("=q", registers, _RESULT[machine], -code)
    if machine == "x86_64":
        struct.pack_into("=q", registers, _X86_CALL, -1)
    _ptrace(_SETREGSET, pid, _GENERAL_REGISTERS, ctypes.addressof(vector))
    if machine == "aarch64":
        number = ctypes.c_int(-1)
        alone = _Vector(ctypes.addressof(number), ctypes.sizeof(number))
        _ptrace(_SETREGSET, pid, _SYSTEM_CALL, ctypes.addressof(alone))


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write("@" + json.dumps(line) + "\n")
    sys.stdout.flush()


def trace(options: dict[str, Any], program: Callable[[], object]) -> None:
    """Run a program in a process of its own; `options` are `root`, `at` and `action`. The end is reported."""
    calls = _WRITES if options["action"] == "fail" else _NUMBERS
    names = {number: name for name, number in calls[platform.machine()].items()}
    tracer = Tracer(options["root"], options["at"], options["action"], names)
    tracer.start(program)
    code = tracer.run()
    _say({"code": code, "killed": tracer.killed, "changes": tracer.changes})


def main() -> None:
    task = json.loads(sys.argv[1])
    command = task["command"]
    trace(task, lambda: os.execvp(command[0], command))


if __name__ == "__main__":
    main()
