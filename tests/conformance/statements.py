"""The numbered conformance statements of MQTT 3.1.1 and 5, read from `data/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conformance.rows import V5, V311

_FILES = {V5: "mqtt5.txt", V311: "mqtt311.txt"}
_DATA = Path(__file__).parent / "data"
BOUND = ("server", "client", "both")


@dataclass(frozen=True)
class Statement:
    """`binds`: "server", "client" or "both"; the last two words ask something of a server."""

    version: int
    number: str
    binds: str
    text: str

    @property
    def is_servers(self) -> bool:
        return self.binds != "client"


@cache
def statements() -> dict[tuple[int, str], Statement]:
    """(protocol level, number) -> statement, in the order of the specifications."""
    found: dict[tuple[int, str], Statement] = {}
    for version, name in _FILES.items():
        for line in (_DATA / name).read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                number, binds, text = (part.strip() for part in line.split("|", 2))
                assert binds in BOUND, line
                assert (version, number) not in found, line
                found[version, number] = Statement(version, number, binds, text)
    return found
