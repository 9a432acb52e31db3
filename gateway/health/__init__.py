"""What is wrong with a running member and what to do: findings, their log lines, the answer of `/status`.

Imports `overlay` for how it stands, and below; is handed what it looks at.
"""

from __future__ import annotations

from gateway.health.judging import BROKEN, DEGRADED, WELL, Finding, Report, View, judge
from gateway.health.looking import Certificates, certificate_end, look
from gateway.health.watching import Watch

__all__ = [
    "BROKEN",
    "DEGRADED",
    "WELL",
    "Certificates",
    "Finding",
    "Report",
    "View",
    "Watch",
    "certificate_end",
    "judge",
    "look",
]
