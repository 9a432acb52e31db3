"""Plugin findings of `veilmq check`: loads each plugin with its options, as at a start, and asks for its warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from amqtt.plugins.base import BaseAuthPlugin

from gateway.auth import EnhancedAuthPlugin
from gateway.auth.claimed_names import claimed_names, unlimited_tokens
from gateway.base import Settings, StartError
from gateway.broker import make_broker
from gateway.checking.check_trust import CheckFinding


def check_plugins(settings: Settings) -> Iterator[CheckFinding]:
    """Yields an error for a plugin that cannot be loaded, and warnings: of plugins, and if no client can log in."""
    try:
        plugins = asyncio.run(_loaded(settings))
    except StartError as error:
        yield CheckFinding("error", str(error))
        return
    for plugin in plugins:
        for said in getattr(plugin, "warnings", ()):
            yield CheckFinding("warning", said)
    if (claimed := claimed_names(plugins, settings.allow_anonymous)) is not None:
        yield CheckFinding("warning", claimed)
    if (unlimited := unlimited_tokens(plugins)) is not None:
        yield CheckFinding("warning", unlimited)
    asks = any(isinstance(plugin, BaseAuthPlugin | EnhancedAuthPlugin) for plugin in plugins)
    if not asks and not settings.allow_anonymous and settings.overlay is None:
        cure = "add an auth plugin, or allow_anonymous: true"
        yield CheckFinding("warning", f"no client can log in: no plugin authenticates anybody; {cure}")


async def _loaded(settings: Settings) -> tuple[object, ...]:
    broker = make_broker(settings)
    await broker.plugins_manager.close()
    return broker.host.plugins
