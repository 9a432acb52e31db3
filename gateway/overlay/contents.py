"""What readers outside the broker need of content modes, so that they need not know `bridge`: pieces put together."""

from __future__ import annotations

from bridge.contract import Count, Send
from bridge.reader import Assembling
from bridge.wire import PROPERTY_PART, check_mode, read

__all__ = ["PROPERTY_PART", "Assembling", "Count", "Send", "check_mode", "read"]
