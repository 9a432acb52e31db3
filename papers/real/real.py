"""Figures on recorded data by name, of all five papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from papers.experiments.experiments import Figure
from papers.real import content, flooding, sharing, tracking, trees

FIGURES: Mapping[str, Callable[..., Figure]] = MappingProxyType(
    {
        "hops": sharing.figure_hops,
        "replicas": sharing.figure_replicas,
        "refresh": sharing.figure_refresh,
        "subscribers": content.figure_subscribers,
        "quotes": content.figure_quotes,
        "publishers": content.figure_publishers,
        "trees": trees.figure_trees,
        "trackers": tracking.figure_trackers,
        "scale-sharing": sharing.figure_scale,
        "scale-content": content.figure_scale,
        "scale-trees": trees.figure_scale,
        "scale-tracking": tracking.figure_scale,
        "scale-floods": flooding.figure_scale,
    }
)
"""Each takes (seed, progress) and, by keyword, `recorded`."""
