"""Assembly of the console for a broker."""

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
from gateway.console.editing import Editing
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
    """Makes the server of a console. `prefix`: of availability topics. Raises PrivateFileError."""
    logins = Logins(os.urandom, broker.host.standing)
    tokens = ApiTokens(None if data is None else data / FILE, os.urandom, broker.host.standing)
    dynamic = next((plugin for plugin in broker.host.plugins if isinstance(plugin, DynamicPlugin)), None)
    editing = Editing(settings, logins, tokens, dynamic)
    broker.host.follow_users(editing.users_changed)
    answering = Answering(settings, Shown(broker, status, prefix, log), editing)
    return ConsoleServer(settings, logins, tokens, answering)
