"""`omnigraph fmt`: formatted files, unchanged files, and atomic replacement."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.running import PEOPLE, READ, run, write

UNTIDY = "query everybody(){match{$p:Person}return{$p.name}}"


@pytest.fixture
def untidy(folder: Path) -> Path:
    return write(folder / "untidy.gq", UNTIDY)


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_file_is_rewritten_in_place(untidy: Path) -> None:
    outcome = run("fmt", "untidy.gq")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == "formatted untidy.gq\n1 file formatted\n"
    assert untidy.read_text(encoding="utf-8") == READ


def test_a_file_in_its_layout_is_not_touched(folder: Path) -> None:
    before = (folder / "people.pg").stat()
    outcome = run("fmt", ".")
    assert (outcome.code, outcome.stdout) == (0, "2 files already formatted\n")
    after = (folder / "people.pg").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_both_languages_are_found_below_a_directory(folder: Path) -> None:
    write(folder / "d/deep/a.gq", UNTIDY)
    write(folder / "d/b.pg", PEOPLE.replace("  ", " "))
    write(folder / "d/.hidden/c.gq", UNTIDY)
    outcome = run("fmt", "d")
    assert outcome.stdout == "formatted d/b.pg\nformatted d/deep/a.gq\n2 files formatted\n"
    assert (folder / "d/.hidden/c.gq").read_text(encoding="utf-8") == UNTIDY


def test_check_names_the_files_and_writes_nothing(untidy: Path) -> None:
    outcome = run("fmt", "--check", "untidy.gq", "people.pg")
    assert outcome.code == 1
    assert outcome.stdout == (
        "would reformat untidy.gq\n1 file would be reformatted, 1 file already formatted\n"
    )
    assert untidy.read_text(encoding="utf-8") == UNTIDY


def test_diff_shows_the_change_and_writes_nothing(untidy: Path) -> None:
    outcome = run("fmt", "--diff", "untidy.gq", "people.pg")
    assert outcome.code == 0
    assert outcome.stdout.startswith("--- untidy.gq\toriginal\n+++ untidy.gq\tformatted\n@@ ")
    assert f"-{UNTIDY}\n\\ No newline at end of file\n+query everybody() {{\n" in outcome.stdout
    assert untidy.read_text(encoding="utf-8") == UNTIDY


def test_diff_with_check_fails_on_a_difference(untidy: Path) -> None:
    assert run("fmt", "--diff", "--check", untidy.name).code == 1
    assert run("fmt", "--diff", "--check", "people.pg").code == 0


@pytest.mark.parametrize("args", [["--stdin", "gq"], ["--stdin", "gq", "-"], ["-", "--stdin", "gq"]])
def test_stdin_goes_to_stdout(args: list[str]) -> None:
    outcome = run("fmt", *args, stdin=UNTIDY)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, READ, "")


def test_stdin_can_be_a_schema() -> None:
    assert run("fmt", "--stdin", "pg", stdin=PEOPLE.replace("  ", " ")).stdout == PEOPLE


def test_stdin_can_be_checked() -> None:
    outcome = run("fmt", "--stdin", "gq", "--check", stdin=UNTIDY)
    assert (outcome.code, outcome.stdout) == (1, "would reformat <stdin>\n")
    assert run("fmt", "--stdin", "gq", "--check", stdin=READ).code == 0


def test_stdin_with_an_error_prints_no_source() -> None:
    outcome = run("fmt", "--stdin", "gq", stdin="query q( {")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: <stdin>:1:10: parse error: ")


@pytest.mark.parametrize("args", [[], ["-"], ["--stdin", "gq", "read.gq"], ["--stdin", "py"]])
def test_an_unclear_request_is_a_usage_error(args: list[str]) -> None:
    outcome = run("fmt", *args)
    assert (outcome.code, outcome.stdout) == (2, "")


def test_a_file_with_an_error_does_not_stop_the_others(folder: Path, untidy: Path) -> None:
    write(folder / "torn.gq", "query q( {")
    outcome = run("fmt", "torn.gq", "missing.gq", "notes.txt", "untidy.gq")
    assert outcome.code == 1
    assert outcome.stdout == "formatted untidy.gq\n1 file formatted, 3 files failed\n"
    assert outcome.stderr.startswith("error: torn.gq:1:10: parse error: ")
    assert "error: no such file: missing.gq\n" in outcome.stderr
    assert "error: notes.txt is neither a .pg nor a .gq file\n" in outcome.stderr
    assert (folder / "torn.gq").read_text(encoding="utf-8") == "query q( {"
    assert untidy.read_text(encoding="utf-8") == READ


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_are_kept(untidy: Path, mode: int) -> None:
    untidy.chmod(mode)
    assert run("fmt", "untidy.gq").code == 0
    assert stat.S_IMODE(untidy.stat().st_mode) == mode


def test_a_link_stays_and_its_target_is_rewritten(folder: Path) -> None:
    target = write(folder / "real/source.gq", UNTIDY)
    (folder / "link.gq").symlink_to("real/source.gq")
    assert run("fmt", "link.gq").code == 0
    assert (folder / "link.gq").readlink() == Path("real/source.gq")
    assert target.read_text(encoding="utf-8") == READ
    assert names(folder / "real") == ["source.gq"]


def test_a_read_only_file_is_refused_and_kept(folder: Path, untidy: Path) -> None:
    untidy.chmod(0o444)
    outcome = run("fmt", "untidy.gq")
    assert outcome.code == 1
    assert outcome.stderr == (
        "error: cannot write untidy.gq: it is read-only\nhint: make it writable first: chmod u+w untidy.gq\n"
    )
    assert untidy.read_text(encoding="utf-8") == UNTIDY
    assert names(folder) == ["people.pg", "read.gq", "untidy.gq"]


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(
    folder: Path, untidy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcome = run("fmt", "untidy.gq")
    assert outcome.code == 1
    assert outcome.stderr == "error: cannot write untidy.gq: no space left on device\n"
    assert untidy.read_text(encoding="utf-8") == UNTIDY
    assert names(folder) == ["people.pg", "read.gq", "untidy.gq"]


def test_a_reader_that_has_the_file_open_keeps_the_whole_old_text(untidy: Path) -> None:
    with untidy.open(encoding="utf-8") as reader:
        run("fmt", "untidy.gq")
        assert reader.read() == UNTIDY
    assert untidy.read_text(encoding="utf-8") == READ


def test_windows_line_ends_and_a_byte_order_mark_go(folder: Path) -> None:
    path = folder / "windows.pg"
    path.write_bytes(b"\xef\xbb\xbf" + PEOPLE.replace("\n", "\r\n").encode())
    assert run("fmt", "windows.pg").stdout.startswith("formatted windows.pg\n")
    assert path.read_bytes() == PEOPLE.encode()
