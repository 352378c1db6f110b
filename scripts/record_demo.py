"""Record the terminal session that README.md shows as a picture: docs/assets/demo.svg.

Runs each command of SESSION in a temporary copy of examples/team and draws what it prints. To regenerate the
picture after a change of the commands or of their output:

    .venv/bin/python scripts/record_demo.py
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console as Terminal
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cli.console import Console  # noqa: E402

PICTURE = ROOT / "docs" / "assets" / "demo.svg"
MOVE = 'omnigraph mutate -e \'query move() {{ update Firm set {{ city: "{}" }} where name = "Acme" }}\' {}'
SESSION = (
    "omnigraph init --schema schema.pg team.omni",
    "omnigraph load team.omni --data people.ndjson --mode append --quiet",
    'omnigraph query introductions --query queries.gq --params \'{"me": "Ana"}\' --store team.omni',
    "omnigraph branch create review --quiet --uri team.omni",
    MOVE.format("Rome", "--branch review --store team.omni"),
    MOVE.format("Paris", "--store team.omni"),
    "omnigraph branch merge review --quiet --uri team.omni",
    "omnigraph branch merge review --resolve theirs --delete-branch --quiet --uri team.omni",
    "omnigraph get Firm Acme --store team.omni",
)
WIDTH = 104
COLOURS = "0d1117 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf c9d1d9"
PALETTE = [(int(c[:2], 16), int(c[2:4], 16), int(c[4:], 16)) for c in COLOURS.split()]
THEME = TerminalTheme(background=PALETTE[0], foreground=PALETTE[7], normal=PALETTE)
# rich's template loads a font from a content delivery network. The picture must not cause any request.
REMOTE_FONT = re.compile(r"\s*@font-face \{.*?\n\s*\}", flags=re.DOTALL)


def record() -> str:
    """Run the session in a new directory and return it as SVG. Changes the working directory while it runs."""
    terminal = Terminal(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        team = shutil.copytree(ROOT / "examples" / "team", Path(folder) / "team")
        os.chdir(team)
        try:
            with Console() as shell:
                for command in SESSION:
                    terminal.print(Text.assemble(("$ ", "green"), (command, "bold")))
                    terminal.print(Text(shell.run(command).rstrip("\n")))
        finally:
            os.chdir(before)
    picture = terminal.export_svg(title="omnigraph", theme=THEME, unique_id="omnigraph-demo")
    without_font = REMOTE_FONT.sub("", picture).replace("Fira Code", "ui-monospace")
    return "".join(f"{line.rstrip()}\n" for line in without_font.splitlines())


if __name__ == "__main__":
    PICTURE.write_text(record(), encoding="utf-8")
