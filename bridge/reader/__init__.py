"""The subscriber side of the overlay: takes pieces from every replica of the home region, delivers verified
publications in order, and names liars.

Here subscriptions become signed statements, and shares become keys. Start reading at `intake`, which gateways and
ingest jobs share. Imports `wire` and below; never publisher or replica.
"""

from __future__ import annotations

from bridge.reader.collector import Collector
from bridge.reader.far_asking import FarAsking
from bridge.reader.handing_out import Unpacked
from bridge.reader.intake import Intake, Lineages, is_dated, misfit
from bridge.reader.interest import ScopeInterest
from bridge.reader.key_opening import KeyRing, Opening
from bridge.reader.overflow import LINK_WINDOW
from bridge.reader.readings import OVERLAP_S, Readings
from bridge.reader.replay import Judge, Replay
from bridge.reader.streams import Held

__all__ = [
    "LINK_WINDOW",
    "OVERLAP_S",
    "Collector",
    "FarAsking",
    "Held",
    "Intake",
    "Judge",
    "KeyRing",
    "Lineages",
    "Opening",
    "Readings",
    "Replay",
    "ScopeInterest",
    "Unpacked",
    "is_dated",
    "misfit",
]
