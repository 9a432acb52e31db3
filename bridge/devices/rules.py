"""Rules of the gateway's configuration for unchanged devices: clients by their ids, others by heartbeats.

Not here: the names in conventions (`conventions`), and who may speak about a device (`speaking`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.devices.conventions import CONVENTIONS
from bridge.devices.life_evidence import FAIL_PERIODS, REJOIN_S
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
        """True if the filter has a `+` before the device and so leaves the bridge open: each of several bridges may
        hear
        it.
        """
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
    """The rules for devices. `clients`: patterns of client ids; `grace_s`: the time in which a lost connection may
    return.
    """

    clients: tuple[str, ...] = ("*",)
    heartbeats: tuple[Heartbeat, ...] = ()
    conventions: tuple[str, ...] = CONVENTIONS
    grace_s: float = 10.0
    sparkplug_host: str = ""
    """Our name as a host application of Sparkplug's; empty: we listen, and ask for nothing."""

    def rejoin_s(self, device: str) -> float:
        """Returns the time in which a device of which only the name is kept must be heard after a restart.

        It is that of the slowest heartbeat that may match it. A learned rhythm is not kept.
        """
        levels = device.count(":") + 1
        every_s = (each.every_s or 0 for each in self.heartbeats if each.topic.split("/").count(MARK) == levels)
        return max(REJOIN_S, FAIL_PERIODS * max(every_s, default=0.0))


def device_name(levels: list[str]) -> str:
    """A name of what has several; `:` occurs in none of them."""
    return ":".join(entity_level(level) for level in levels)
