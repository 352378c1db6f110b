"""The table of subcommands agrees with the subcommands, which it does not import until they are used."""

from __future__ import annotations

import pytest

from omnigraph.cli.command_table import COMMANDS, Entry, load_command


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_an_entry_says_what_the_help_of_its_command_says(entry: Entry) -> None:
    command = load_command(entry)
    first_paragraph = (command.help or "").split("\n\n")[0]
    assert (command.name, " ".join(first_paragraph.split()), command.hidden) == (
        entry.name,
        entry.summary,
        entry.hidden,
    )


def test_names_are_unique() -> None:
    names = [entry.name for entry in COMMANDS]
    assert len(names) == len(set(names))
