"""Events of a broker, sent to web addresses and topics: connects, disconnects, faults, messages of some topics.

Imports `client` and rooms below; is handed the broker.
"""

from __future__ import annotations

from gateway.telling.hooks import Hook, Hooks, signature

__all__ = ["Hook", "Hooks", "signature"]
