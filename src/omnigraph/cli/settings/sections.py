"""Typed access to the sections of a YAML settings file, with errors that name the file and the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.cli.render.output import print_warning
from omnigraph.errors import InvalidInput


@dataclass(frozen=True)
class Section:
    """A mapping in a settings file. `name` is its dotted path, empty for the whole document."""

    path: Path
    name: str
    members: Mapping[Any, Any]

    def section(self, key: str, known: Sequence[str] | None = None) -> Section:
        """Return a subsection, empty if it is missing. Warns of keys that are not in `known`."""
        value = self.members.get(key)
        found = Section(self.path, self._place(key), {} if value is None else value)
        if not isinstance(found.members, dict):
            raise found.invalid("must be a mapping", value)
        if known is not None:
            found.warn_unknown_keys(known)
        return found

    def sections(self, known: Sequence[str]) -> Iterator[tuple[str, Section]]:
        """Yield the name and the subsection of every member."""
        for key in self.members:
            if not isinstance(key, str) or not key.strip() or not key.isprintable():
                raise self.invalid("has a key that is not printable text", key)
            yield key, self.section(key, known)

    def warn_unknown_keys(self, known: Sequence[str]) -> None:
        """Print a warning for each key that is not in `known`."""
        from omnigraph.lang.suggestions import did_you_mean

        for key in self.members:
            if key not in known:
                near = did_you_mean(str(key), list(known))
                print_warning(f"{self.path}: unknown key '{self._place(str(key))}'{near}")

    def text(self, key: str) -> str | None:
        """Return a printable text, or None if the key is missing."""
        value = self.members.get(key)
        if value is None or (isinstance(value, str) and value.strip() and value.isprintable()):
            return value
        raise Section(self.path, self._place(key), {}).invalid("must be printable text", value)

    def required_text(self, key: str) -> str:
        """Return a text. Raises `InvalidInput` if the key is missing."""
        value = self.text(key)
        if value is None:
            raise InvalidInput(f"{self.path}: {self.name} needs `{key}`")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        """Return one of the choices, or None if the key is missing."""
        value = self.members.get(key)
        if value is not None and value not in choices:
            place = Section(self.path, self._place(key), {})
            raise place.invalid(f"must be one of {', '.join(choices)}", value)
        return None if value is None else str(value)

    def number(self, key: str) -> int | None:
        """Return an integer of at least 1, or None if the key is missing."""
        value = self.members.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise Section(self.path, self._place(key), {}).invalid("must be an integer of at least 1", value)
        return value

    def invalid(self, requirement: str, value: Any) -> InvalidInput:
        """Return the error for an invalid value."""
        return InvalidInput(f"{self.path}: {self.name or 'the settings'} {requirement}, got {value!r}")

    def _place(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def parse_sections(text: str, path: Path) -> Section:
    """Parse a YAML file into its root section. Raises `InvalidInput` with the line if it is not a YAML mapping."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidInput(f"{path}{place} is not YAML: {problem}") from error
    found = Section(path, "", {} if document is None else document)
    if not isinstance(found.members, dict):
        raise found.invalid("must be a mapping", document)
    return found
