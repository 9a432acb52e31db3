"""Figures of the last day, one row a minute, and the history of alarms, in the broker's own data directory.

Imports `base`, `health` and `operation`; is handed what it samples.
"""

from __future__ import annotations

from gateway.day.day_keeper import DayKeeper
from gateway.day.minutes import FIELDS, Minute, Sampler

__all__ = ["FIELDS", "DayKeeper", "Minute", "Sampler"]
