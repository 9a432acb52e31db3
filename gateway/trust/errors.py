"""The error of this room."""

from __future__ import annotations

from bridge.base import OperatorError


class TrustError(OperatorError):
    """An error of files or rights in a line for the operator: the file, the fault and the cure."""
