"""Putting the console together for one broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.auth.dynamic import DynamicPlugin
from gateway.base.config_console import Console
from gateway.broker import EdgeBroker
from gateway.console.answering import Answering
from gateway.console.logins import Logins
from gateway.console.serving import ConsoleServer
from gateway.console.shown import LogTail, Shown

TOKENS = "console-tokens.json"


def make_server(
    settings: Console,
    data: Path | None,
    broker: EdgeBroker,
    status: Callable[[], dict[str, Any]],
    prefix: str,
    log: LogTail,
) -> ConsoleServer:
    """`prefix`: of availability topics. Raises PrivateFileError."""
    logins = Logins(None if data is None else data / TOKENS, os.urandom)
    dynamic = next((plugin for plugin in broker.host.plugins if isinstance(plugin, DynamicPlugin)), None)
    return ConsoleServer(settings, logins, Answering(settings, Shown(broker, status, prefix, log), logins, dynamic))
