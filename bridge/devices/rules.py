"""Who is an unchanged device, as the gateway's configuration says: clients by their ids, others by heartbeats.

Not here: what conventions name (`conventions`), and who may speak about a device (`speaking`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.devices.conventions import CONVENTIONS
from bridge.devices.standing import FAIL_PERIODS, REJOIN_S
from bridge.traces import entity_level

MARK = "{device}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Messages by which something behind a bridge is known to live: a topic filter with levels `{device}`, which name
    it. `every_s`: how often they come at least; None: that is learned."""

    topic: str
    every_s: float | None = None

    @property
    def is_of_many(self) -> bool:
        """Whether the filter leaves open, by a `+` before the device, which bridge hears it: then each of them may."""
        return "+" in self.topic.partition(MARK)[0].split("/")

    def device(self, levels: list[str]) -> str | None:
        """Whom a topic's levels name; None for another topic."""
        wanted = self.topic.split("/")
        if wanted[-1] == "#":
            wanted.pop()
            levels = levels[: len(wanted)]
        if len(levels) != len(wanted):
            return None
        if any(want not in (MARK, "+", level) for want, level in zip(wanted, levels, strict=True)):
            return None
        return device_name([level for want, level in zip(wanted, levels, strict=True) if want == MARK])


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """Who is a device. `clients`: patterns of client ids; `grace_s`: how long a lost connection may take to be back."""

    clients: tuple[str, ...] = ("*",)
    heartbeats: tuple[Heartbeat, ...] = ()
    conventions: tuple[str, ...] = CONVENTIONS
    grace_s: float = 10.0
    sparkplug_host: str = ""
    """Our name as a host application of Sparkplug's; empty: we listen, and ask for nothing."""

    def rejoin_s(self, device: str) -> float:
        """How long after a restart one may take to be heard, of which only the name is kept: as long as the slowest
        heartbeat that may have it. A rhythm that was learned is not kept."""
        levels = device.count(":") + 1
        every_s = (each.every_s or 0 for each in self.heartbeats if each.topic.split("/").count(MARK) == levels)
        return max(REJOIN_S, FAIL_PERIODS * max(every_s, default=0.0))


def device_name(levels: list[str]) -> str:
    """One name of what has several; `:` occurs in none of them."""
    return ":".join(entity_level(level) for level in levels)
