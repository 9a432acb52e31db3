"""Speakers of unchanged devices: the connection that a gateway believes about each device.

    * a client's connection, will and messages speak for the device of the client's own name
    * any other device is bound to the first connection that spoke of the device. While this connection is open,
      no other is believed, not even about a death. After its end another connection of equal origin (the address)
      may speak for the device, after `HANDOVER_S` a connection of any origin; the first may always come back
    * the connection of a Sparkplug node speaks for the node's devices
    * a client that speaks VeilMQ is no unchanged device, and is not believed about any

These rules serve sites where everybody may publish everywhere. Rules of topics (an `acl`) are the better guard: an
`acl` also holds before the first word. The table is fair: a client that floods the table with names loses its own
devices first. Not here: messages (`devices`), verdicts (`life_evidence`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from bridge.contract import Budget, FairTable
from bridge.devices.conventions import Said
from bridge.devices.entities import SaidOfEntities
from bridge.devices.life_evidence import DeviceHealth, DeviceLink, LifeEvidence
from bridge.devices.sparkplug import Session
from bridge.traces import TraceKind, entity_level
from keys.errors import NotAuthorised

DEVICES_MAX = 20_000  # of one gateway; the greediest origin loses the one that it heard of longest ago
SETTLE_S = 2.0  # before a client that connects is taken for a device: it may say that it knows VeilMQ
# New names of one origin: what it introduces lives on in tables of other gateways for a week.
NAMES_BURST, NAMES_PER_S = float(DEVICES_MAX), 0.1
ORIGINS_MAX = 4_096  # whose new names are counted; who introduced something longest ago begins anew
HANDOVER_S = 600.0  # how long a device's connection is gone before one of another origin may speak for the device


@dataclass(slots=True)
class Device:
    """A device. `founder`: the client that spoke of it first; `by`: how it became known, for people."""

    name: str
    founder: str
    by: str
    evidence: LifeEvidence
    settles_at: float
    """Nothing is told of it before."""
    told: DeviceHealth | None = None
    why: str = ""
    clean: bool = False
    state: TraceKind | None = None
    told_at: float = float("-inf")
    counted_at: float = float("-inf")  # the last message that its rhythm is learned of
    well_at: float = 0.0
    due: float | None = None  # when it is looked at next
    session: Session = field(default_factory=Session)  # of a Sparkplug node
    parent: str = ""  # the Sparkplug node behind which it is, or its root at Homie: it dies with that
    parent_death: int = 0  # the number of the last death of its parent that it knows of
    death: tuple[int, str, Said] | None = None  # its own, that its children die: number, source, word
    said: SaidOfEntities = field(default_factory=SaidOfEntities)  # of Home Assistant's
    said_by: str = ""  # the source of the word that its entities come to
    leaves_by: float = float("-inf")  # a connection of its own that ends before then left, and is not lost
    named: str = ""  # what Home Assistant's discovery messages call it


class Speaking:
    """Clients and devices of a gateway."""

    def __init__(self) -> None:
        self._links: dict[str, DeviceLink] = {}  # by client, as long as it is connected or speaks for a device
        self._levels: dict[str, str] = {}  # names that clients have as devices -> the client
        self._speaks: dict[str, dict[str, None]] = {}  # devices by the client that speaks for them
        self._children: dict[str, dict[str, None]] = {}  # names of devices by the name of their parent
        self._devices: FairTable[str, Device] = FairTable(DEVICES_MAX)
        self._names: OrderedDict[bytes, Budget] = OrderedDict()  # by origin

    def __len__(self) -> int:
        return len(self._devices)

    def device(self, name: str) -> Device | None:
        return self._devices.get(name)

    def link_of(self, client: str) -> DeviceLink | None:
        return self._links.get(client)

    # ------------------------------------------------------------------------------------------ connections

    def take_connection(self, client: str, origin: str, keep_alive_s: int, now: float) -> DeviceLink:
        """A client's new connection; what it spoke for before it speaks for again."""
        link = self._links.get(client)
        if link is None:
            link = self._links[client] = DeviceLink(client, entity_level(client), b"")
            self._levels[link.level] = client
        link.origin, link.keep_alive_s, link.seen_at = origin.encode(), keep_alive_s, now
        link.up, link.willed, link.knows = True, False, False
        return link

    def own(self, link: DeviceLink) -> Device | None:
        """The device that this connection is."""
        found = self._devices.get(link.level)
        return found if found is not None and found.evidence.own and found.evidence.link is link else None

    def spoken_for(self, link: DeviceLink) -> Collection[str]:
        """Names of the devices that this connection speaks for, its own included. It must not change meanwhile."""
        return self._speaks.get(link.client, {}).keys()

    def children(self, parent: str) -> Collection[str]:
        """Names of the devices that hang on another one. It must not change meanwhile."""
        return self._children.get(parent, {}).keys()

    def hang(self, device: Device, parent: str) -> None:
        """A device hangs on another one from now on; on none: empty."""
        if device.parent:
            siblings = self._children[device.parent]
            del siblings[device.name]
            if not siblings:
                del self._children[device.parent]
        device.parent = parent
        if parent:
            self._children.setdefault(parent, {})[device.name] = None

    def is_itself(self, device: Device, link: DeviceLink) -> bool:
        """Returns True if a connection speaks for this device alone, and so is the device's own."""
        names = self._speaks.get(link.client, {})
        is_only = len(names) - (link.level in names) == 1 and device.name in names
        return device.name == link.level or is_only

    def tidy(self, link: DeviceLink) -> None:
        """Forget a client that is away and speaks for nothing."""
        if not self._speaks.get(link.client):
            self._speaks.pop(link.client, None)
            if not link.up and self._links.pop(link.client, None) is not None:
                self._levels.pop(link.level, None)

    # ---------------------------------------------------------------------------------------------- devices

    def claim(self, name: str, link: DeviceLink, by: str, now: float) -> tuple[Device, Device | None]:
        """The device that this connection speaks of, and one that had to go for it. Raises NotAuthorised."""
        known = self._devices.get(name)
        if known is None:
            if self._levels.get(name, link.client) != link.client:
                raise NotAuthorised(f"{name} is another client")
            return self.admit(name, link, by, now)
        if known.evidence.link is not link:
            if not self._may_take_over(known, link, now):
                raise NotAuthorised(f"{name} is spoken for by another connection")
            self.move(known, link)
        return known, None

    def move(self, known: Device, link: DeviceLink) -> None:
        """Has another connection speak for a device from now on."""
        self._release(known)
        known.evidence.link, known.evidence.own = link, False
        self._devices.put(known.name, link.origin, known)  # whoever speaks for it pays for its place
        known.founder = known.founder or link.client
        self._speaks.setdefault(link.client, {})[known.name] = None

    def hears(self, known: Device, link: DeviceLink) -> None:
        """A second bridge hears a device. It speaks for the device once the first one is gone, which may come back."""
        known.evidence.roams = True
        if known.evidence.link is None or not known.evidence.link.up:
            self.move(known, link)

    def may_speak(self, known: Device, link: DeviceLink, now: float) -> bool:
        """Returns True if a connection speaks for a device, or may from now on."""
        return known.evidence.link is link or self._may_take_over(known, link, now)

    def _may_take_over(self, known: Device, link: DeviceLink, now: float) -> bool:
        if known.founder in ("", link.client):
            return True
        before = known.evidence.link
        if known.evidence.own or before is None or before.up:
            return False
        return before.origin == link.origin or now - before.left_at >= HANDOVER_S

    def admit(
        self, name: str, link: DeviceLink | None, by: str, now: float, origin: bytes = b""
    ) -> tuple[Device, Device | None]:
        """Returns a new device, and one that had to go for it; it may be the new one itself. `origin`: who pays for a
        place of which no connection does; empty: the device."""
        device = Device(name, link.client if link else "", by, LifeEvidence(now, now, link), now)
        # Whom nobody speaks for yet has an origin of its own: those of before a restart are no flood.
        gone = self._devices.put(name, link.origin if link else origin or b"before " + name.encode(), device)
        if link is not None:
            self._speaks.setdefault(link.client, {})[name] = None
        if gone is None:
            return device, None
        self.hang(gone[1], "")
        self._release(gone[1])
        return device, gone[1]

    def introduces(self, device: Device, now: float) -> bool:
        """Returns True if a new device may be told: False if its origin introduces ever new ones."""
        if device.evidence.link is None:
            return True
        origin = device.evidence.link.origin
        budget = self._names.pop(origin, None) or Budget(NAMES_PER_S, NAMES_BURST, now)
        self._names[origin] = budget
        if len(self._names) > ORIGINS_MAX:
            self._names.popitem(last=False)
        if not budget.has_tokens(now):
            return False
        budget.spend(1.0, now)
        return True

    def renew_device(self, device: Device) -> None:
        """Makes the device the last of its origin's devices to be evicted."""
        self._devices.touch(device.name)

    def remove_device(self, device: Device) -> None:
        self._devices.pop(device.name)
        self.hang(device, "")
        self._release(device)

    def _release(self, device: Device) -> None:
        """Its connection no longer speaks for it."""
        link = device.evidence.link
        if link is not None:
            self._speaks.get(link.client, {}).pop(device.name, None)
            self.tidy(link)
