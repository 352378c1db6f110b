"""Positions of the nodes of a small graph, by the method of Fruchterman and Reingold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.float64]
_STEPS = 120
# The pull to the middle, which keeps parts without edges between them together.
_GRAVITY = 0.04


def place_nodes(count: int, edges: Sequence[tuple[int, int]]) -> Positions:
    """Return positions in the unit square. The same graph always has the same positions.

    Time and memory grow with the square of `count`.

    >>> place_nodes(2, [(0, 1)]).round(2).tolist()
    [[0.0, 0.5], [1.0, 0.5]]
    """
    if count == 0:
        return np.zeros((0, 2))
    angles = np.arange(count) * 2.399963
    radii = np.sqrt(np.arange(count) + 0.5)
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radii[:, None]
    ends = np.array([(low, high) for low, high in edges if low != high], np.int64).reshape(-1, 2)
    heat = np.sqrt(count)
    for step in range(_STEPS):
        apart = at[:, None, :] - at[None, :, :]
        square = np.maximum((apart**2).sum(axis=2), 1e-4)
        force = (apart / square[:, :, None]).sum(axis=1) - at * _GRAVITY
        along = at[ends[:, 0]] - at[ends[:, 1]]
        pull = along * np.sqrt((along**2).sum(axis=1))[:, None]
        np.add.at(force, ends[:, 0], -pull)
        np.add.at(force, ends[:, 1], pull)
        length = np.maximum(np.sqrt((force**2).sum(axis=1)), 1e-9)
        at = at + force / length[:, None] * np.minimum(length, heat * (1 - step / _STEPS))[:, None]
    return _fitted(at)


def _fitted(at: Positions) -> Positions:
    """Turn the longest axis to the horizontal one, and scale both to the unit square."""
    at = at - at.mean(axis=0)
    _, vectors = np.linalg.eigh(at.T @ at)
    at = at @ vectors[:, ::-1]
    # The direction of an axis is arbitrary.
    at = at * np.where(at[np.abs(at).argmax(axis=0), [0, 1]] > 0, -1, 1)
    low, high = at.min(axis=0), at.max(axis=0)
    size = high - low
    flat = size < 1e-9
    return np.where(flat, 0.5, (at - low) / np.where(flat, 1, size))
