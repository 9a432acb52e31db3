"""The subscriber side: pieces from every replica of the home region in, verified publications in order out, liars
named.

Interest becomes signed statements here, shares become keys. Imports `wire`, `topology` and below; never publisher or
replica.
"""

from __future__ import annotations

from bridge.reader.assembling import Assembling
from bridge.reader.chains import Chain, Ready
from bridge.reader.collector import Collector
from bridge.reader.heads import Head
from bridge.reader.interest import Interest

__all__ = [
    "Assembling",
    "Chain",
    "Collector",
    "Head",
    "Interest",
    "Ready",
]
