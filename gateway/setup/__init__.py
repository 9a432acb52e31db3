"""Making and running an overlay: folders of its members, an operator's own folder, all members on a machine.

Imports `owner` and `trust` for signed and issued files, and `base`. Knows no broker: it starts the command `veilmq
broker`, as any host does.
"""

from __future__ import annotations

from gateway.setup.folders import (
    CONFIG,
    IDENTITY,
    OVERLAY,
    RoleFolder,
    role_folders,
)
from gateway.setup.initialising import Made, make_overlay
from gateway.setup.joining import Joined, join
from gateway.setup.plan import Plan, SetupError
from gateway.setup.supervising import Supervisor

__all__ = [
    "CONFIG",
    "IDENTITY",
    "OVERLAY",
    "Joined",
    "Made",
    "Plan",
    "RoleFolder",
    "SetupError",
    "Supervisor",
    "join",
    "make_overlay",
    "role_folders",
]
