"""A receiver as a process of its own: `veilmq ingest run`. Until SIGTERM or SIGINT; no Spark, no Java.

Not here: receiving itself (`receiver`), what is received (`options`).
"""

from __future__ import annotations

import logging
import signal
import threading

from .options import Options
from .receiver import Receiver, ReceiverSettings
from .replicas import RegionReplicas

LOOK_S = 0.5
_log = logging.getLogger(__name__)


def serve(options: Options) -> int:
    """Exit status 0 after a signal. Raises what ended the receiver."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stopped = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopped.set())
    settings = ReceiverSettings(
        options.spool, options.grants, options.receiver, options.cap_bytes, options.incomplete_s
    )
    receiver = Receiver(settings, lambda: RegionReplicas(options))
    receiver.start()
    _log.info("receiver %s writes to %s", options.receiver, options.spool)
    while receiver.alive and not stopped.wait(LOOK_S):
        continue
    receiver.stop()
    if receiver.failure is not None:
        raise receiver.failure
    return 0
