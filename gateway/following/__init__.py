"""The socket at which an administrator of this machine follows publications, and the command's side of it.

Imports `base` alone. What is followed is in `base/followed.py`; the steps are said where publications pass.
"""

from __future__ import annotations

from gateway.following.asking import Question, follow
from gateway.following.serving import SOCKET, FollowServer

__all__ = ["SOCKET", "FollowServer", "Question", "follow"]
