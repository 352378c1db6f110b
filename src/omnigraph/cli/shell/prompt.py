"""The prompt of an interactive shell: editing, completion, colours and history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer

from omnigraph.cli.render.output import escape_unprintable
from omnigraph.cli.settings.config import settings_directory
from omnigraph.cli.shell.completion import complete
from omnigraph.cli.shell.highlighting import highlight
from omnigraph.cli.shell.session import Session
from omnigraph.cli.shell.statements import is_whole
from omnigraph.cli.shell.vocabulary import Vocabulary

_HISTORY = "shell_history"
_INDENT = "  "


class QueryLexer(Lexer):
    """Colours the text at the prompt."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Return the pieces of each line."""
        lines = highlight(document.text)
        return lambda number: [*lines[number]] if number < len(lines) else []


class QueryCompleter(Completer):
    """Completes commands, keywords and the names of the graph."""

    def __init__(self, names: Vocabulary) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the signature of prompt_toolkit
        """Yield the candidates at the cursor."""
        found = complete(document.text_before_cursor, self._names)
        for text in found.texts:
            yield Completion(text, start_position=-found.typed)


def make_prompt(session: Session, **terminal: Any) -> PromptSession[str]:
    """Return the prompt of a session. `terminal` has the `input` and `output` of tests."""
    return PromptSession(
        message=lambda: _message(session),
        prompt_continuation=lambda width, _line, _soft: "...> ".rjust(width),
        multiline=True,
        key_bindings=_key_bindings(),
        lexer=QueryLexer(),
        completer=ThreadedCompleter(QueryCompleter(Vocabulary(session))),
        complete_while_typing=False,
        history=_history(),
        **terminal,
    )


def _message(session: Session) -> str:
    place = session.branch if session.at is None else f"@{session.at}"
    return f"{escape_unprintable(place)}> "


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            # Enter takes the chosen completion.
            buffer.complete_state = None
        elif not buffer.document.text_after_cursor.strip() and is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            _start_line(event)

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        _start_line(event)

    return bindings


def _start_line(event: KeyPressEvent) -> None:
    """Insert a line break, and the indentation of the line, which grows after an open bracket."""
    buffer = event.current_buffer
    opens = buffer.document.current_line_before_cursor.rstrip().endswith(("{", "(", "["))
    buffer.newline(copy_margin=True)
    if opens:
        buffer.insert_text(_INDENT)


def _history() -> History:
    """Return the history of earlier shells, in a file that only the user can read."""
    folder = settings_directory(os.environ)
    path = folder / _HISTORY
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
