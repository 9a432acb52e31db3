"""What runs beside a broker as its configuration says: looks at how it stands, bridges, page and API.

Put together here, begun when the broker serves, ended with it. What the parts do is in their rooms.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

from gateway.base import Settings
from gateway.broker import EdgeBroker
from gateway.health import Certificates, View, Watch, look
from gateway.overlay import BrokerOverlay, standing

Ends = contextlib.ExitStack | contextlib.AsyncExitStack


def attach(settings: Settings, links: BrokerOverlay | None, ends: Ends) -> Callable[[EdgeBroker], None]:
    """What is to be called when the broker serves; all of it ends with `ends`."""

    def begin(broker: EdgeBroker) -> None:
        watch = Watch(partial(_view, settings, links, broker, Certificates()), time.monotonic)
        broker.operation.health = watch
        ends.callback(watch.stop)
        watch.start()

    return begin


def _view(settings: Settings, links: BrokerOverlay | None, broker: EdgeBroker, certificates: Certificates) -> View:
    now = time.time()
    overlay = None
    if links is not None and settings.overlay is not None:
        overlay = standing(links, now, settings.overlay.outbox_bytes)
    return look(settings, certificates, broker.operation.observe(), overlay, now)
