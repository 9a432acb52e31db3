"""The HTTP API of a broker and the page that uses it: what runs, who is connected, what is kept; for those who may.

Imports `broker` for what it shows, `client`, `auth`, `plugins` and below. Needs aiohttp: `pip install
'veilmq[console]'`.
"""

from __future__ import annotations

from gateway.console.logins import Logins
from gateway.console.shown import Shown

__all__ = ["Logins", "Shown"]
