"""Settings of a graph: how long the data of old commits is retained.

Settings are part of the registry row of `__manifest`, which every handle reads when it opens a graph. Reading them
therefore takes no request of its own, and all processes that use a graph have the same settings. A setting that was
never changed is not stored and has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.graph.repository import Repository
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.maintain.retention import parse_duration
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView

FOREVER: Final = "forever"
DEFAULT: Final = "default"
RETENTION: Final = "retention"
# A shorter time would remove data that reads and writes in progress still use.
MIN_OLDER_THAN: Final = timedelta(seconds=5)
_FIELDS: Final = ("keep", "older_than", "thinned")
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_HINT: Final = (
    "such as 'forever', 'default', '1h', 'keep=1000,older_than=1h' or {'keep': 1000, 'thinned': '30d'}"
)

# What a caller may pass for a retention policy.
RetentionInput: TypeAlias = "str | timedelta | Mapping[str, Any] | RetentionSetting"


@dataclass(frozen=True, slots=True)
class RetentionSetting:
    """Which commits keep their data when upkeep collects garbage.

    A commit keeps its data if any of these holds: it is one of the newest `keep` commits of a branch; it was the
    head of a branch within `older_than`; it was the last commit of its branch in a minute of the last hour, in an
    hour of the last day, or in a day within `thinned`. Heads and merge bases always keep their data. With
    ``"forever"`` as `keep`, upkeep removes nothing.
    """

    keep: int | Literal["forever"] = 1000
    older_than: timedelta = timedelta(minutes=1)
    thinned: timedelta = timedelta(days=30)

    @classmethod
    def of(cls, value: RetentionInput) -> RetentionSetting:
        """Return the setting of a value; `InvalidInput` if it is not one.

        A text is ``"forever"``, ``"default"``, a duration, which is `older_than`, or fields such as
        ``"keep=1000,older_than=1h"``. Fields that are not given have their default.

        >>> RetentionSetting.of("keep=5000").to_json()
        {'keep': 5000, 'older_than': '1m', 'thinned': '30d'}
        >>> RetentionSetting.of("2d").older_than.days
        2
        """
        if isinstance(value, RetentionSetting):
            return value
        if isinstance(value, timedelta):
            return cls._of_fields({"older_than": value})
        if isinstance(value, str):
            return cls._of_text(value)
        if isinstance(value, Mapping):
            return cls._of_fields(value)
        raise InvalidInput(f"retention: expected a text or a mapping, got {value!r}", hint=_HINT)

    @property
    def is_forever(self) -> bool:
        """Whether upkeep removes nothing."""
        return self.keep == FOREVER

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, which is also the stored form."""
        if self.is_forever:
            return {"keep": FOREVER}
        return {
            "keep": self.keep,
            "older_than": format_duration(self.older_than),
            "thinned": format_duration(self.thinned),
        }

    def __str__(self) -> str:
        if self.is_forever:
            return FOREVER
        return ",".join(f"{name}={value}" for name, value in self.to_json().items())

    @classmethod
    def _of_text(cls, text: str) -> RetentionSetting:
        text = text.strip()
        if text == DEFAULT:
            return cls()
        if text == FOREVER:
            return cls(keep=FOREVER)
        if "=" not in text:
            return cls._of_fields({"older_than": text})
        parts = [part.partition("=") for part in text.split(",")]
        fields = {name.strip(): value.strip() for name, _, value in parts}
        if len(fields) < len(parts):
            raise InvalidInput(f"retention: a field is given twice in '{text}'")
        return cls._of_fields(fields)

    @classmethod
    def _of_fields(cls, fields: Mapping[str, Any]) -> RetentionSetting:
        for name in fields:
            if name not in _FIELDS:
                raise InvalidInput(
                    f"retention: unknown field '{name}'", hint=f"the fields are {', '.join(_FIELDS)}"
                )
        keep = _keep(fields.get("keep", cls().keep))
        if keep == FOREVER:
            return cls(keep=FOREVER)
        older_than = _duration("older_than", fields.get("older_than", cls().older_than))
        if older_than < MIN_OLDER_THAN:
            raise InvalidInput(
                f"retention: older_than must be at least {format_duration(MIN_OLDER_THAN)}, got {older_than}",
                hint="reads and writes in progress need the states of this time",
            )
        return cls(keep, older_than, _duration("thinned", fields.get("thinned", cls().thinned)))


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """The settings of a graph.

    >>> GraphSettings().to_json()
    {'retention': {'keep': 1000, 'older_than': '1m', 'thinned': '30d'}}
    """

    retention: RetentionSetting = field(default_factory=RetentionSetting)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {RETENTION: self.retention.to_json()}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> GraphSettings:
        """Return settings from their JSON form. Missing settings have their default, others are ignored."""
        value = stored.get(RETENTION)
        return cls() if value is None else cls(RetentionSetting.of(value))


def read_settings(repository: Repository) -> GraphSettings:
    """Return the settings of a graph."""
    manifest = repository.manifest
    return GraphSettings.of(manifest.registry(manifest.refresh()).settings)


def change_settings(repository: Repository, *, retention: RetentionInput) -> GraphSettings:
    """Change settings of a graph for all processes that use it, and return them."""
    repository.check_writable("change settings")
    policy = RetentionSetting.of(retention)
    manifest = repository.manifest

    def change(view: ManifestView) -> GraphSettings:
        registry = manifest.registry(view)
        # Settings of a later release are kept.
        settings = {name: value for name, value in registry.settings.items() if name != RETENTION}
        if policy != RetentionSetting():
            settings[RETENTION] = policy.to_json()
        if settings != registry.settings:
            manifest.replace_registry_if_equals(
                view, registry, ManifestChange(registry=registry.with_settings(settings))
            )
        return GraphSettings.of(settings)

    return retry_swap(manifest, change, changed="the settings", hint="show the settings before trying again")


def format_duration(duration: timedelta) -> str:
    """Return a duration as text, in the largest unit that is exact. Fractions of seconds are dropped.

    >>> format_duration(timedelta(days=7)), format_duration(timedelta(minutes=90)), format_duration(timedelta(0))
    ('7d', '90m', '0s')
    """
    seconds = int(duration.total_seconds())
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _keep(value: Any) -> int | Literal["forever"]:
    if value == FOREVER:
        return FOREVER
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or number < 1:
        raise InvalidInput(
            f"retention: keep must be a whole number of at least 1 or 'forever', got {value!r}",
            hint="the head of a branch is always kept",
        )
    return number


def _duration(name: str, value: Any) -> timedelta:
    try:
        return parse_duration(value)
    except InvalidInput as error:
        raise InvalidInput(f"retention: {name}: {error.message}", hint=error.hint or _HINT) from error
