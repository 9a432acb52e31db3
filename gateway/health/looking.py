"""Inspection of a process: certificates on disk, free disk space, the broker and the overlay."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509

from gateway.base import Settings
from gateway.health.findings import View
from gateway.operation import BrokerSnapshot
from gateway.overlay import OverlayStanding


class Certificates:
    """The expiry times of certificate files, read again when a file changes."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, float | None]] = {}

    def end_of(self, path: Path) -> float | None:
        """Returns the expiry time (UNIX, seconds) of a file's first certificate, or None if the file has none."""
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        known = self._known.get(path)
        if known is None or known[0] != changed:
            known = self._known[path] = changed, certificate_end(path)
        return known[1]


def certificate_end(path: Path) -> float | None:
    """Returns the expiry time (UNIX, seconds) of a PEM file's first certificate, or None if the file has none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None


def look(
    settings: Settings,
    certificates: Certificates,
    snapshot: BrokerSnapshot,
    overlay: OverlayStanding | None,
    now: float,
) -> View:
    """Returns the process's view without findings of parts that judge themselves. `now`: UNIX time in seconds."""
    ends = {}
    for what, path in _files(settings):
        end = certificates.end_of(path)
        if end is not None:
            ends[what] = end
    free = {}
    if settings.data is not None and settings.data.exists():
        free[str(settings.data)] = shutil.disk_usage(settings.data).free
    return View(
        now=now,
        overlay=overlay,
        ends=ends,
        disk_free=free,
        clients=snapshot.clients_connected,
        connections=snapshot.connections,
        connections_max=settings.limits.connections,
        histories=snapshot.histories,
        defects=snapshot.traffic.defects.count,
    )


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, listener in settings.listeners.items():
        if listener.certfile is not None:
            yield f"certificate of listener {name} ({listener.certfile})", listener.certfile
    if settings.overlay is not None:
        path = settings.overlay.identity / "cert.pem"
        yield f"certificate of identity {settings.overlay.identity.name} ({path})", path
    for name, bridge in settings.bridges.items():
        if bridge.tls is not None and bridge.tls.certfile is not None:
            yield f"certificate of bridge {name} ({bridge.tls.certfile})", bridge.tls.certfile
