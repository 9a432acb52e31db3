"""Putting the console together for one broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.auth.api_tokens import FILE, ApiTokens
from gateway.auth.dynamic import DynamicPlugin
from gateway.base.config_console import Console
from gateway.broker import EdgeBroker
from gateway.console.answering import Answering
from gateway.console.logins import Logins
from gateway.console.serving import ConsoleServer
from gateway.console.shown import LogTail, Shown


def make_server(
    settings: Console,
    data: Path | None,
    broker: EdgeBroker,
    status: Callable[[], dict[str, Any]],
    prefix: str,
    log: LogTail,
) -> ConsoleServer:
    """`prefix`: of availability topics. Raises PrivateFileError."""
    logins = Logins(os.urandom)
    tokens = ApiTokens(None if data is None else data / FILE, os.urandom)
    dynamic = next((plugin for plugin in broker.host.plugins if isinstance(plugin, DynamicPlugin)), None)
    answering = Answering(settings, Shown(broker, status, prefix, log), logins, tokens, dynamic)
    return ConsoleServer(settings, logins, tokens, answering)
