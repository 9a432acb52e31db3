"""What readers outside the broker need of content modes, so that they need not know `bridge`: pieces put together."""

from __future__ import annotations

from bridge.assembling import Assembling
from bridge.content import PROPERTY_PART, check_mode, read
from bridge.machine import Count, Send

__all__ = ["PROPERTY_PART", "Assembling", "Count", "Send", "check_mode", "read"]
