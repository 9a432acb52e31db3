"""Common parts of every process: configuration, limits, log lines, figures, files holding a secret.

Imports pure rooms of `bridge` for names in configurations; no other room of `gateway`.
"""

from __future__ import annotations

from gateway.base.alarm import Alarm
from gateway.base.clock import Clock
from gateway.base.config import (
    ConfigError,
    OverlaySettings,
    Settings,
    StartError,
    load,
    load_hosted,
    parse,
)
from gateway.base.config_bridges import BridgeSettings, BridgeTls, BridgeTopic
from gateway.base.config_discovery import Discovery
from gateway.base.config_hosted import Hosted
from gateway.base.config_listeners import Listener
from gateway.base.config_traces import DeviceSettings, OtherWitnessSettings, TraceSettings, WatchedSettings
from gateway.base.defects import Defects
from gateway.base.figures import (
    FIGURES_TOPIC,
    RECEIPTS_ROOT,
    Figures,
    HistoryState,
    LinkFigures,
    LinkState,
    ReaderState,
    ReplicaSpan,
    ScopeSpan,
)
from gateway.base.garbage import collect_by_clock, collect_seldom, uncollected
from gateway.base.large_pages import use_large_pages
from gateway.base.limits import Limits
from gateway.base.sealed_file import SealedFile, SealedFileError
from gateway.base.stamps import Stamps
from gateway.base.turns import TURN_S, FairTurns, Turn, behind_reads
from gateway.files import (
    FileStamp,
    PrivateFileError,
    alone_in,
    erase,
    lock_exclusively,
    private_directory,
    read_private,
    replace_public,
    stamp,
    sync_directory,
    write_private,
    write_public,
)

__all__ = [
    "FIGURES_TOPIC",
    "RECEIPTS_ROOT",
    "TURN_S",
    "Alarm",
    "BridgeSettings",
    "BridgeTls",
    "BridgeTopic",
    "Clock",
    "ConfigError",
    "Defects",
    "DeviceSettings",
    "Discovery",
    "FairTurns",
    "Figures",
    "FileStamp",
    "HistoryState",
    "Hosted",
    "Limits",
    "LinkFigures",
    "LinkState",
    "Listener",
    "OtherWitnessSettings",
    "OverlaySettings",
    "PrivateFileError",
    "ReaderState",
    "ReplicaSpan",
    "ScopeSpan",
    "SealedFile",
    "SealedFileError",
    "Settings",
    "Stamps",
    "StartError",
    "TraceSettings",
    "Turn",
    "WatchedSettings",
    "alone_in",
    "behind_reads",
    "collect_by_clock",
    "collect_seldom",
    "erase",
    "load",
    "load_hosted",
    "lock_exclusively",
    "parse",
    "private_directory",
    "read_private",
    "replace_public",
    "stamp",
    "sync_directory",
    "uncollected",
    "use_large_pages",
    "write_private",
    "write_public",
]
