"""Tracing findings of `veilmq check`: faults of files in `traces:` and `watched:`, and ineffective settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.base import PrivateFileError, TraceSettings, WatchedSettings
from gateway.checking.check_trust import CheckFinding
from gateway.tracing import Watched, authority_of, owner_of
from gateway.trust import Card, LocalIdentity, TrustError


def check_traces(settings: TraceSettings, data: Path | None) -> Iterator[CheckFinding]:
    """Yields findings on `traces:`. `data`: the broker's data directory, if it has one."""
    authority = None
    try:
        authority = authority_of(settings.authority)
    except TrustError as error:
        yield CheckFinding("error", str(error))
    for load, path in ((LocalIdentity.load, settings.identity), *((Card.load, node) for node in settings.nodes)):
        try:
            load(path)
        except TrustError as error:
            yield CheckFinding("error", str(error))
    if data is None:
        yield CheckFinding("warning", "traces: trace topics do not survive a restart; set `data`")
    devices = settings.devices
    if devices is None or authority is None:
        return
    try:
        owner = owner_of(devices, authority, data)
    except TrustError as error:
        yield CheckFinding("error", str(error))
        return
    if not devices.discoverers and not devices.dashboards:
        cure = "name those who may track them in discoverers, or dashboards"
        yield CheckFinding("warning", f"traces.devices: nobody hears of the devices; {cure}")
    elif devices.discoverers:
        yield CheckFinding("ok", f"traces: devices are called {owner.certificate.name}:DEVICE")


def check_watched(settings: WatchedSettings) -> Iterator[CheckFinding]:
    """Yields findings on `watched:`: faults of its files, no `discoverers`, and the number of brokers that decide."""
    try:
        watched = Watched(settings)
    except (TrustError, PrivateFileError) as error:
        yield CheckFinding("error", str(error))
        return
    if not settings.discoverers:
        yield CheckFinding("warning", "watched: nobody hears of us; name those who may track us in discoverers")
    else:
        count = len(settings.brokers)
        yield CheckFinding(
            "ok", f"watched: we are {watched.credentials.name}, of which {count // 2 + 1} of {count} decide"
        )
