"""False alarm of uvloop: TLS sending its goodbye on a connection that is already gone.

A peer that is killed while the broker ends its connection leaves a transport that uvloop has closed, and to which
uvloop's own TLS layer still writes the goodbye. uvloop then reports a RuntimeError to the loop, which asyncio logs
with a traceback. The connection is lost in any case, and reported as lost. All other reports to a loop are logged as
usual.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

GOODBYE = "Error occurred during shutdown"
"""The message of uvloop's report (`SSLProtocol._on_shutdown_complete`)."""

log = logging.getLogger(__name__)


def tell_unless_gone(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handles a report to the loop, for `loop.set_exception_handler`: hides the false alarm only."""
    if context.get("message") == GOODBYE and isinstance(context.get("exception"), RuntimeError):
        log.debug("a connection was gone before TLS had ended it: %s", context["exception"])
        return
    loop.default_exception_handler(context)
