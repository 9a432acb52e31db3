"""HTTP API of a broker and the page using it: state, clients, sessions and retained messages, by the user's rights.

Imports `broker`, `client`, `auth`, `plugins` and below. Needs aiohttp: `pip install 'veilmq[console]'`.
"""

from __future__ import annotations

from gateway.console.logins import Logins
from gateway.console.shown import Shown

__all__ = ["Logins", "Shown"]
