"""Replicas, gateways and key servers on the local network, by multicast DNS (zeroconf, RFC 6762 and 6763).

An advertisement says who is where: overlay, name, role and *party*, the fingerprint of the member's key. Anybody can
send one, so it is a hint and nothing more: `known` drops what the signed overlay does not list under this very
fingerprint, and a connection to a found address still has to show that key in its TLS handshake
(`gateway/client/tls.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from zeroconf import Error as ZeroconfError
from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from bridge.document import Overlay
from gateway.base import StartError
from keys.identity import Role

SERVICE = "_veilmq._tcp.local."
FORMAT = "1"
FOUND_MAX = 1024
"""Advertisements remembered: stops a neighbour that makes up names from filling memory."""
RESOLVES_MAX = 32
"""Look-ups at a time, for the same reason."""
RESOLVE_MS = 3000
LABEL_BYTES_MAX = 63  # of a name in multicast DNS (RFC 1035 §2.3.4)
LABEL_PARTY = 8
"""Hexadecimal digits of the party in the name of an advertisement."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PARTY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class FoundMember:
    """An advertisement, as it was heard: believed by nobody yet. `party`: 32 hex digits (`Identity.party_id`)."""

    overlay: str
    name: str
    role: Role
    party: str
    hosts: tuple[str, ...]
    port: int

    @property
    def addresses(self) -> tuple[str, ...]:
        """HOST:PORT of each host."""
        return tuple(f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}" for host in self.hosts)


def known(found: FoundMember, overlay: Overlay) -> bool:
    """Returns True if the overlay lists this name with this key and role. Its holder must still prove it by TLS."""
    member = overlay.members.get(found.name)
    if member is None or found.overlay != overlay.policy.overlay or found.role is not member.certificate.role:
        return False
    return found.party in {certificate.party_id.hex() for certificate in member.certificates}


class Neighbourhood:
    """Advertises and finds while it is entered: `async with Neighbourhood(interfaces) as here`.

    `interfaces`: addresses of the interfaces to use, e.g. 192.0.2.7; empty: all. Raises StartError when multicast DNS
    cannot be used there.
    """

    def __init__(self, interfaces: Sequence[str] = ()) -> None:
        self._interfaces = list(interfaces)
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, FoundMember] = {}
        self._told: AsyncServiceInfo | None = None

    async def __aenter__(self) -> Neighbourhood:
        try:
            if self._interfaces:
                self._zeroconf = AsyncZeroconf(interfaces=self._interfaces, ip_version=_ip_version(self._interfaces))
            else:
                self._zeroconf = AsyncZeroconf()
        except (OSError, ValueError, RuntimeError) as error:
            where = ", ".join(self._interfaces) or "any interface"
            raise StartError(
                f"discovery: multicast DNS does not work on {where} ({error}); name other interfaces"
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._browser is not None:
            await self._browser.async_cancel()
        for task in self._resolving.values():
            task.cancel()
        await asyncio.gather(*self._resolving.values(), return_exceptions=True)
        if self._zeroconf is not None:
            await self._zeroconf.async_close()

    async def advertise(self, me: FoundMember) -> None:
        """Say where we are until the end, or the next call. Raises StartError when somebody else has the name."""
        assert self._zeroconf is not None
        if self._told is not None:
            told, self._told = self._told, None
            await (await self._zeroconf.async_unregister_service(told))
        text = {"v": FORMAT, "overlay": me.overlay, "name": me.name, "role": me.role.value, "party": me.party}
        label = label_of(me)
        info = AsyncServiceInfo(
            SERVICE,
            f"{label}.{SERVICE}",
            port=me.port,
            parsed_addresses=list(me.hosts),
            properties=dict(text),
            server=f"{me.party[:16]}.local.",
        )
        try:
            await (await self._zeroconf.async_register_service(info))
        except ZeroconfError as error:
            raise StartError(
                f"discovery: somebody on this network is {label} already ({type(error).__name__}); stop the other one"
            ) from None
        self._told = info

    @property
    def found(self) -> tuple[FoundMember, ...]:
        """The members that were heard and not taken back since; nothing of them is verified."""
        return tuple(self._found.values())

    def find(self, on_found: Callable[[FoundMember], object]) -> None:
        """Call `on_found` for each advertisement, again when it changes, until the end."""
        assert self._zeroconf is not None

        def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
            if state_change is ServiceStateChange.Removed:
                self._found.pop(name, None)
            elif name not in self._resolving and len(self._resolving) < RESOLVES_MAX:
                task = asyncio.get_running_loop().create_task(self._resolve(zeroconf, name, on_found))
                self._resolving[name] = task
                task.add_done_callback(lambda _: self._resolving.pop(name, None))

        self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE, handlers=[changed])

    async def _resolve(self, zeroconf: Zeroconf, name: str, on_found: Callable[[FoundMember], object]) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        with contextlib.suppress(ZeroconfError, OSError):
            if not await info.async_request(zeroconf, RESOLVE_MS):
                return
            found = read(info)
            room = name in self._found or len(self._found) < FOUND_MAX
            if found is not None and room and self._found.get(name) != found:
                self._found[name] = found
                on_found(found)


def label_of(me: FoundMember) -> str:
    """Returns the name of an advertisement: a label, without dots (RFC 6763 §4.1.1), of 63 bytes at most.

    Browsers show nothing, or the first half, of a name of several labels. The end of the party keeps names apart that
    are the same without their dots; the true names stand in the text record.
    """
    name = f"{me.name}-{me.overlay}".replace(".", "-")
    return f"{name[: LABEL_BYTES_MAX - LABEL_PARTY - 1]}-{me.party[:LABEL_PARTY]}"


def read(info: AsyncServiceInfo) -> FoundMember | None:
    """An advertisement that is one of ours and well-formed; None for anything else the network sends."""
    try:
        text = {key.decode("ascii"): (value or b"").decode("ascii") for key, value in info.properties.items()}
        overlay, name, party = text["overlay"], text["name"], text["party"]
        hosts = tuple(str(ipaddress.ip_address(host)) for host in info.parsed_addresses())
        if text["v"] != FORMAT or not hosts or not info.port:
            return None
        if not (_NAME.fullmatch(name) and _NAME.fullmatch(overlay) and _PARTY.fullmatch(party)):
            return None
        return FoundMember(overlay, name, Role(text["role"]), party, hosts, info.port)
    except (KeyError, ValueError):
        return None


def _ip_version(interfaces: Sequence[str]) -> IPVersion:
    versions = {ipaddress.ip_address(interface).version for interface in interfaces}
    return {frozenset({4}): IPVersion.V4Only, frozenset({6}): IPVersion.V6Only}.get(frozenset(versions), IPVersion.All)
