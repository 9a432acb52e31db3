"""Members of an overlay in network namespaces of their own, on one bridge, whose links can be cut and healed.

Needs root and iproute2. A pair is cut in one direction by a blackhole route to the other, so that neither end is told:
what was connected is half-open. Taking an interface down cuts one member from all. Devices reach the gateways over Unix
sockets, which namespaces do not divide.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.overlay_processes import START_S, OverlayProcesses
from tests.support.files import edited
from tests.waits import wait_until

KEEP_ALIVE_S = 4
"""Said by the replicas: a link that was cut is noticed after 6 s."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass
class Network:
    """Namespaces by member. `close` removes them with all that is in them."""

    prefix: str = field(default_factory=lambda: f"veilmq{os.getpid()}")
    addresses: dict[str, str] = field(default_factory=dict)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    down: set[str] = field(default_factory=set)

    def make(self, names: Sequence[str]) -> None:
        switch = self.namespace("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for place, name in enumerate(names, 1):
            own, port = self.namespace(name), f"port{place}"
            self.addresses[name] = f"10.77.0.{place}"
            ip("netns", "add", own)
            ip("-n", own, "link", "set", "lo", "up")
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", own)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", own, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            ip("-n", own, "link", "set", "eth0", "up")

    def namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def cut(self, a: str, b: str) -> None:
        """What `a` sends to `b` is gone."""
        if (a, b) not in self.cuts:
            ip("-n", self.namespace(a), "route", "add", "blackhole", f"{self.addresses[b]}/32")
            self.cuts.add((a, b))

    def heal(self, a: str, b: str) -> None:
        if (a, b) in self.cuts:
            ip("-n", self.namespace(a), "route", "del", "blackhole", f"{self.addresses[b]}/32")
            self.cuts.discard((a, b))

    def set_link(self, name: str, up: bool) -> None:
        """The member's only interface."""
        if up is (name in self.down):
            ip("-n", self.namespace(name), "link", "set", "eth0", "up" if up else "down")
            self.down.symmetric_difference_update({name})

    def throttle(self, a: str, b: str, kbit: int) -> None:
        """What `a` sends to `b` takes its time; 0: no more."""
        tc = ("ip", "netns", "exec", self.namespace(a), "tc")
        root = ("dev", "eth0", "root", "handle", "1:", "htb")
        if not kbit:
            subprocess.run([*tc, "qdisc", "del", "dev", "eth0", "root"], check=True, capture_output=True)
            return
        to = ("protocol", "ip", "u32", "match", "ip", "dst", f"{self.addresses[b]}/32", "flowid", "1:2")
        for words in (
            ("qdisc", "add", *root),
            ("class", "add", "dev", "eth0", "parent", "1:", "classid", "1:2", "htb", "rate", f"{kbit}kbit"),
            ("filter", "add", "dev", "eth0", "parent", "1:", *to),
        ):
            subprocess.run([*tc, *words], check=True, capture_output=True)

    def heal_all(self) -> None:
        for a, b in list(self.cuts):
            self.heal(a, b)
        for name in list(self.down):
            self.set_link(name, True)

    def close(self) -> None:
        for name in [*self.addresses, "switch"]:
            subprocess.run(["ip", "netns", "del", self.namespace(name)], check=False, capture_output=True)


@dataclass
class DividedProcesses(OverlayProcesses):
    """An overlay whose members run in the namespaces of `network`."""

    transport = "unix"
    network: Network = field(default_factory=Network)

    def divide(self, regions: Mapping[str, int], edges: Sequence[tuple[str, str]], gateways: Mapping[str, str]) -> None:
        """As `make`, and gives everybody a namespace and an address there."""
        self.make(regions, edges, gateways)
        self.network.make(list(self.ports))
        addresses = self.network.addresses

        def on_the_bridge(description: dict[str, Any]) -> None:
            for region in description["regions"]:
                for place, entry in enumerate(region["members"], 1):
                    name = f"{region['name']}{place}"
                    entry["address"] = f"{addresses[name]}:{self.ports[name]}"

        self.describe(on_the_bridge)
        self.hand_out(*self.ports)
        for name in self.ports:
            with edited(self.directory / f"{name}.yaml") as content:
                listener = content["listeners"]["default"]
                if name in gateways:
                    listener["bind"] = f"unix:{self._socket(name)}"
                    # All at once, after a heal.
                    content["limits"] = {"queue_messages": 100_000, "queue_bytes": 256 << 20}
                else:
                    listener["bind"] = f"{addresses[name]}:{self.ports[name]}"
                    content["limits"] = {"keep_alive_max_s": KEEP_ALIVE_S}

    def _socket(self, name: str) -> str:
        return f"{self.directory}/{name}.sock"

    def _prefix(self, name: str) -> Sequence[str]:
        return "ip", "netns", "exec", self.network.namespace(name)

    def _wait_for(self, name: str) -> None:
        def listens() -> bool:
            assert self.running[name].poll() is None, f"{name} ended: {self.log(name)}"
            return "listener default:" in self.log(name)

        assert wait_until(listens, START_S), self.log(name)

    def endpoint(self, gateway: str) -> tuple[str, int]:
        return self._socket(gateway), 1883

    def stop(self) -> None:
        super().stop()
        self.network.close()
