"""Topology of the overlay: the place of a replica, the path of a key, the neighbours that can hear, placement of
replicas; and planes: the structured overlay, its loads, and the routing of notifications in it.

Publisher, replica and reader ask here and nowhere else, so that another routing touches this room only. Imports
`document`; sends nothing.
"""

from __future__ import annotations

from bridge.topology.congestion import IDLE, LinkLoad, LinkStatus
from bridge.topology.far_ways import FarWays, asked_of, keeping
from bridge.topology.placement import SHARING_MIN, Path, Placement, place
from bridge.topology.planes import Planes
from bridge.topology.potential import potential_peers
from bridge.topology.replica_proposals import PlaceStep, ReplicaFigures, next_step
from bridge.topology.routes import Routes
from bridge.topology.routing import RoutedCopy, detour, dynamic, planes_of, split_identifiers, static
from bridge.topology.scot import PlanePlace, PlaneStep, RowTable, Scot, spread, subscribe_all, unsubscribe_all
from bridge.topology.topology import Topology, peers_of
from bridge.topology.witnesses import LinkNow, LinkSeen, LinkWitness, agreed

__all__ = [
    "IDLE",
    "SHARING_MIN",
    "FarWays",
    "LinkLoad",
    "LinkNow",
    "LinkSeen",
    "LinkStatus",
    "LinkWitness",
    "Path",
    "PlaceStep",
    "Placement",
    "PlanePlace",
    "PlaneStep",
    "Planes",
    "ReplicaFigures",
    "RoutedCopy",
    "Routes",
    "RowTable",
    "Scot",
    "Topology",
    "agreed",
    "asked_of",
    "detour",
    "dynamic",
    "keeping",
    "next_step",
    "peers_of",
    "place",
    "planes_of",
    "potential_peers",
    "split_identifiers",
    "spread",
    "static",
    "subscribe_all",
    "unsubscribe_all",
]
