"""Assembly of the console for a broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.auth.api_tokens import FILE, ApiTokens
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.oidc import OidcPlugin
from gateway.base import StartError
from gateway.base.config_console import Console
from gateway.base.followed import FollowedMessages
from gateway.broker import EdgeBroker
from gateway.console.answering import Answering
from gateway.console.editing import Editing
from gateway.console.logins import Logins
from gateway.console.serving import ConsoleServer
from gateway.console.shown import LogTail, Shown

if TYPE_CHECKING:
    from gateway.console.provider_login import ProviderLogin


def make_server(
    settings: Console,
    data: Path | None,
    broker: EdgeBroker,
    status: Callable[[], dict[str, Any]],
    prefix: str,
    log: LogTail,
    followed: FollowedMessages,
) -> ConsoleServer:
    """Makes the server of a console. `prefix`: of availability topics. Raises PrivateFileError, StartError."""
    logins = Logins(os.urandom, broker.host.standing)
    tokens = ApiTokens(None if data is None else data / FILE, os.urandom, broker.host.standing)
    dynamic = next((plugin for plugin in broker.host.plugins if isinstance(plugin, DynamicPlugin)), None)
    editing = Editing(settings, logins, tokens, dynamic)
    broker.host.follow_users(editing.users_changed)
    answering = Answering(settings, Shown(broker, status, prefix, log), editing, followed)
    oidc = next((plugin for plugin in broker.host.plugins if isinstance(plugin, OidcPlugin)), None)
    return ConsoleServer(settings, logins, tokens, answering, oidc, _provider_login(settings, oidc))


def _provider_login(settings: Console, oidc: OidcPlugin | None) -> ProviderLogin | None:
    """Returns the page's login at a provider, if it is configured. Raises StartError."""
    if settings.provider is None:
        return None
    if oidc is None:
        raise StartError("console: provider needs the plugin gateway.auth.oidc.OidcPlugin; add it")
    from gateway.console.provider_login import ProviderLogin  # noqa: PLC0415  only who has a provider needs its library

    return ProviderLogin(settings.provider, oidc, os.urandom)
