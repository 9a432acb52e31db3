"""Faults of a running member and their cures: findings, their log lines, the answer of `/status`.

Imports `overlay` for its standing, and rooms below; is handed the objects that it inspects.
"""

from __future__ import annotations

from gateway.health.alarms import Alarms
from gateway.health.findings import BROKEN, DEGRADED, LEVELS, WELL, Finding, HealthReport, View, judge
from gateway.health.looking import Certificates, certificate_end, look
from gateway.health.watching import HealthWatch

__all__ = [
    "BROKEN",
    "DEGRADED",
    "LEVELS",
    "WELL",
    "Alarms",
    "Certificates",
    "Finding",
    "HealthReport",
    "HealthWatch",
    "View",
    "certificate_end",
    "judge",
    "look",
]
