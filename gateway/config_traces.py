"""`traces:` in a configuration: who is traced here, by whose word, and how fast a death is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from .limits import Model


class TraceSettings(Model):
    """Tracing of entities that know VeilMQ. Absent: constrained topics are ordinary ones."""

    authority: Path = Field(description="ca.pem of the trust domain that certifies entities and trackers")
    identity: Path = Field(description="our identity directory: it signs advertisements")
    nodes: list[Path] = Field(default=[], description="card.json of other gateways that are discovery nodes")
    preset: Literal["lan", "wan", "cellular"] = Field(default="lan", description="times of pings, see bridge/pings.py")

    def anchored(self, directory: Path) -> TraceSettings:
        """The same with relative paths taken from a directory."""
        return self.model_copy(
            update={
                "authority": directory / self.authority.expanduser(),
                "identity": directory / self.identity.expanduser(),
                "nodes": [directory / node.expanduser() for node in self.nodes],
            }
        )
