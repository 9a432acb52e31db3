"""The driver of bridge's machines over real links, a real clock and real files; and the reader's client.

Imports `client`, `clients`, `outbox`, `trust` and below; never `broker`.
"""

from __future__ import annotations

from bridge.presence import RegionPresence
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.dials import Dials
from gateway.overlay.entities import LocalEntities
from gateway.overlay.gateway_overlay import GatewayOverlay
from gateway.overlay.hosted import NOBODY, PLAIN, logins, of_region
from gateway.overlay.key_cache import KeyCache
from gateway.overlay.key_material import DIRECTORY, KeyMaterial, KeyMaterialError
from gateway.overlay.key_server_overlay import KeyServerOverlay
from gateway.overlay.local_rights import ScopeRights
from gateway.overlay.member_files import Keeping
from gateway.overlay.member_status import OverlayStanding, RegionStanding, standing, summaries
from gateway.overlay.neighbours import Neighbours
from gateway.overlay.reader_rows import ReaderRows
from gateway.overlay.region_client import (
    SESSION_EXPIRY_S,
    ClientError,
    ConfigError,
    MqttClient,
    MqttError,
    OverlayError,
    PrivateFileError,
    Properties,
    Publish,
    RegionClient,
    TlsError,
    TrustError,
    dial,
    read_private,
)
from gateway.overlay.replica_overlay import ReplicaOverlay

__all__ = [
    "DIRECTORY",
    "NOBODY",
    "PLAIN",
    "SESSION_EXPIRY_S",
    "BrokerOverlay",
    "ClientError",
    "ConfigError",
    "Dials",
    "GatewayOverlay",
    "Keeping",
    "KeyCache",
    "KeyMaterial",
    "KeyMaterialError",
    "KeyServerOverlay",
    "LocalEntities",
    "MqttClient",
    "MqttError",
    "Neighbours",
    "OverlayError",
    "OverlayStanding",
    "PrivateFileError",
    "Properties",
    "Publish",
    "ReaderRows",
    "RegionClient",
    "RegionPresence",
    "RegionStanding",
    "ReplicaOverlay",
    "ScopeRights",
    "TlsError",
    "TrustError",
    "dial",
    "logins",
    "of_region",
    "read_private",
    "standing",
    "summaries",
]
