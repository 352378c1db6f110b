"""Migration codes are part of the public contract."""

from __future__ import annotations

from omnigraph.catalog.migration.migration_codes import CODES, FAMILIES


def test_the_catalogue_is_pinned() -> None:
    assert FAMILIES == ("DS", "MF", "CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK")
    assert {code: (item.tier, item.severity, item.emitted) for code, item in CODES.items()} == {
        "OG-DS-101": ("destructive", "error", False),
        "OG-DS-102": ("destructive", "error", False),
        "OG-DS-103": ("destructive", "error", False),
        "OG-DS-104": ("destructive", "error", False),
        "OG-DS-105": ("destructive", "error", False),
        "OG-MF-103": ("validated", "error", True),
        "OG-MF-104": ("validated", "error", False),
        "OG-MF-106": ("destructive", "error", True),
    }


def test_every_code_belongs_to_a_family() -> None:
    assert {item.family for item in CODES.values()} <= set(FAMILIES)
