"""Who is next for whom: the place of a replica, the path of a key, the neighbours that can hear; and where replicas
go.

Publisher, replica and reader ask here and nowhere else, so that another routing touches this room only. Imports
`document`; sends nothing.
"""

from __future__ import annotations

from bridge.topology.placement import SHARING_MIN, Path, Placement, place
from bridge.topology.routes import Routes
from bridge.topology.topology import Topology, peers_of

__all__ = [
    "SHARING_MIN",
    "Path",
    "Placement",
    "Routes",
    "Topology",
    "peers_of",
    "place",
]
