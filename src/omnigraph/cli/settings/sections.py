"""A file of settings, section by section: what is there, what must be there, and what means nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.cli.render.output import warn
from omnigraph.errors import InvalidInput


@dataclass(frozen=True)
class Section:
    """A mapping of a file; `name` is where it stands in it, empty for the whole."""

    path: Path
    name: str
    members: Mapping[Any, Any]

    def section(self, key: str, known: Sequence[str] | None = None) -> Section:
        """The section of a name, empty when there is none; of `known` names others are warned of."""
        value = self.members.get(key)
        found = Section(self.path, self._place(key), {} if value is None else value)
        if not isinstance(found.members, dict):
            raise found.wrong("must be a mapping", value)
        if known is not None:
            found.warn_of_others(known)
        return found

    def sections(self, known: Sequence[str]) -> Iterator[tuple[str, Section]]:
        """Every member by its name, each a section of its own."""
        for key in self.members:
            if not isinstance(key, str) or not key.strip() or not key.isprintable():
                raise self.wrong("has a name that is not a readable text", key)
            yield key, self.section(key, known)

    def warn_of_others(self, known: Sequence[str]) -> None:
        """Warn of every name that means nothing here."""
        from omnigraph.lang.suggestions import did_you_mean

        for key in self.members:
            if key not in known:
                near = did_you_mean(str(key), list(known))
                warn(f"{self.path}: unknown key '{self._place(str(key))}'{near}")

    def text(self, key: str) -> str | None:
        """A text that can be read, or None."""
        value = self.members.get(key)
        if value is None or (isinstance(value, str) and value.strip() and value.isprintable()):
            return value
        raise Section(self.path, self._place(key), {}).wrong("must be a readable text", value)

    def needed(self, key: str) -> str:
        """A text that has to be there."""
        value = self.text(key)
        if value is None:
            raise InvalidInput(f"{self.path}: {self.name} needs `{key}`")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        """One of some texts, or None."""
        value = self.members.get(key)
        if value is not None and value not in choices:
            place = Section(self.path, self._place(key), {})
            raise place.wrong(f"must be one of {', '.join(choices)}", value)
        return None if value is None else str(value)

    def number(self, key: str) -> int | None:
        """A number of at least 1, or None."""
        value = self.members.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise Section(self.path, self._place(key), {}).wrong("must be a number of at least 1", value)
        return value

    def wrong(self, what: str, value: Any) -> InvalidInput:
        """What to raise for a value that cannot be meant."""
        return InvalidInput(f"{self.path}: {self.name or 'the settings'} {what}, not {value!r}")

    def _place(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def parse_sections(text: str, path: Path) -> Section:
    """A file of YAML as its outermost section, or `InvalidInput` with the place of what is wrong."""
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
        raise found.wrong("must be a mapping", document)
    return found
