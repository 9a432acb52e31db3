"""The replica: verifies, forwards once, splits shares again, keeps retained publications. It cannot read any content.

Algorithm 2 of secret forwarding (A5). Imports `wire`, `topology` and below; never publisher or reader.
"""

from __future__ import annotations

from bridge.replica.far_passing import FarPassing
from bridge.replica.forwarder import Forwarder

__all__ = [
    "FarPassing",
    "Forwarder",
]
