"""One replica: verify, forward once, split shares again, keep what is retained. It cannot read what it carries.

Algorithm 2 of secret forwarding (A5). Imports `wire`, `topology` and below; never publisher or reader.
"""

from __future__ import annotations

from bridge.replica.forwarder import Forwarder

__all__ = [
    "Forwarder",
]
