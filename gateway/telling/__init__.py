"""Events of a broker to web addresses and topics: who came and went, what is wrong, messages of some topics.

Imports `client` and below; the broker is handed to it.
"""

from __future__ import annotations

from gateway.telling.hooks import Hook, Hooks, signature

__all__ = ["Hook", "Hooks", "signature"]
