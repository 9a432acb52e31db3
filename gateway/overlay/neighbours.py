"""Discovery while a member runs: it says on the local network where it listens, and hears where other members are.

What was heard is another address to try when a member does not answer where the overlay file says (`redial`). It is
never more than a hint: the overlay must list the advertised key, and the TLS handshake must show it. Whoever floods
the network with advertisements can take the hints away, nothing else. The network's side is in `discovery`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from types import TracebackType

import ifaddr

from gateway.base import Discovery, Listener, Settings
from gateway.base.log_events import LogEvent
from gateway.client import Address
from gateway.overlay.discovery import FoundMember, Neighbourhood, known
from gateway.trust import LiveOverlay

log = logging.getLogger("veilmq.discovery")

LOOK_AGAIN_S = 30.0
"""How often the advertisement is compared with what we are: after a rotation our key is another one."""
WILDCARDS = ("", "*", "0.0.0.0", "::")  # noqa: S104  recognised, not bound


class Neighbours:
    """The neighbours by multicast DNS; entered before the first link is dialled. Raises StartError if it does not
    work.
    """

    def __init__(self, settings: Discovery, live: LiveOverlay) -> None:
        self._settings, self._live = settings, live
        self._here: Neighbourhood | None = None
        self._telling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Neighbours:
        if self._settings.advertise or self._settings.find:
            self._here = await Neighbourhood(self._settings.interfaces).__aenter__()
        if self._here is not None and self._settings.find:
            self._here.find(lambda found: log.debug("heard of %s at %s", found.name, ", ".join(found.addresses)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        if self._here is not None:
            await self._here.__aexit__(kind, error, trace)

    def addresses(self, peer: str) -> list[Address]:
        """Returns the announced addresses of a member, under a key the overlay in force lists for it."""
        if self._here is None:
            return []
        said = [found for found in self._here.found if found.name == peer and known(found, self._live.overlay)]
        return [(host, found.port) for found in said for host in found.hosts]

    def advertise(self, settings: Settings, port_of: Callable[[str], int]) -> None:
        """From now on say where we listen, if the configuration asks for it. `port_of`: by name of the listener."""
        if self._here is None or not self._settings.advertise:
            return
        name, listener = advertised_listener(settings)
        hosts = () if listener is None else addresses_of(listener.bind, self._settings.interfaces)
        if not hosts:
            LogEvent.NOTHING_ADVERTISED.say(log)
            return
        tell = self._advertise_member(self._here, tuple(hosts), port_of(name))
        self._telling = asyncio.get_running_loop().create_task(tell, name="advertise")

    async def _advertise_member(self, here: Neighbourhood, hosts: tuple[str, ...], port: int) -> None:
        told, refused = None, ""
        while True:
            local = self._live.local
            party = local.identity.party_id.hex()
            me = FoundMember(self._live.overlay.policy.overlay, local.name, local.role, party, hosts, port)
            if me != told:
                try:
                    await here.advertise(me)
                    told, refused = me, ""
                except Exception as error:  # noqa: BLE001  the links do not depend on it
                    if str(error) != refused:  # whoever took our name on the network must not end us, nor fill the log
                        refused = str(error)
                        LogEvent.DISCOVERY_FAILED.say(log, error, LOOK_AGAIN_S)
            await asyncio.sleep(LOOK_AGAIN_S)


def advertised_listener(settings: Settings) -> tuple[str, Listener | None]:
    """The listener that members are told of: that of the overlay; for a gateway without one, its first TCP listener."""
    candidates = [
        (name, listener)
        for name, listener in settings.listeners.items()
        if listener.type == "tcp" and listener.unix_path is None
    ]
    return next((one for one in candidates if one[1].overlay), candidates[0] if candidates else ("", None))


def addresses_of(bind: str, interfaces: Sequence[str]) -> list[str]:
    """The IP addresses behind `bind`, as others on the network would use them; [] if it has none.

    A wildcard stands for `interfaces`, or for every address of this machine that is neither loopback nor link-local.
    """
    host = bind.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host in WILDCARDS:
        if interfaces:
            return list(interfaces)
        held = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
        every = [ip if isinstance(ip, str) else ip[0] for ip in held]
        usable = (address for address in every if not _is_local(address))
        return [address for address in dict.fromkeys(usable) if host != "0.0.0.0" or ":" not in address]  # noqa: S104
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))
    return []


def _is_local(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback or parsed.is_link_local
