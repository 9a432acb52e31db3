"""What uvloop takes for a fault though nothing is wrong: TLS that says goodbye on a connection that is gone already.

A peer that is killed while we end its connection leaves a transport that uvloop has closed, and that its own TLS layer
still writes the goodbye to. It tells the loop of a RuntimeError then, which asyncio logs with a traceback. The
connection is lost either way, and said to be. All else that a loop is told is logged as ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

GOODBYE = "Error occurred during shutdown"
"""What uvloop calls it (`SSLProtocol._on_shutdown_complete`)."""

log = logging.getLogger(__name__)


def tell_unless_gone(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`."""
    if context.get("message") == GOODBYE and isinstance(context.get("exception"), RuntimeError):
        log.debug("a connection was gone before TLS had ended it: %s", context["exception"])
        return
    loop.default_exception_handler(context)
