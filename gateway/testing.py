"""Region of an overlay in this process, for tests of a user's own program.

    with region() as plant:
        client.connect("127.0.0.1", plant.port("g1"))

Replicas and gateways are real: sockets on loopback, files in a directory, sealed publications, shares. They run on one
thread. Not here: members as processes, which `veilmq up` runs (`gateway.setup`).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gateway.base import Settings, StartError, load
from gateway.broker import EdgeBroker
from gateway.overlay import BrokerOverlay
from gateway.party import Party, build, end_session
from gateway.setup import Made, Plan, make_overlay
from gateway.sockets.gone import tell_unless_gone
from keys.identity import Role

T = TypeVar("T")
FIRST_PORTS = range(10_000, 24_000)
"""Ports of the first gateway: those of all members lie below the range of outgoing connections."""
START_S = 60.0
"""Seconds in which all members are linked; a machine may be busy."""
LOOK_S = 0.01


class RunningMember(NamedTuple):
    """Running member of an overlay."""

    broker: EdgeBroker
    links: BrokerOverlay


async def start_member(settings: Settings, ends: AsyncExitStack) -> RunningMember:
    """Starts a member on this event loop; it ends with `ends`. Raises the errors of `Party` and of the broker."""
    party = Party(settings)
    links = build(party)
    ends.push_async_callback(links.stop)
    broker = EdgeBroker(settings, overlay=links, overlay_context=party.tls.server)
    await broker.start()
    ends.push_async_callback(broker.shutdown)
    links.start(broker.local, partial(end_session, broker.lifecycle))
    return RunningMember(broker, links)


class RunningRegion:
    """Running region: replicas r1, r2, ..., gateways g1, g2, ...; all of them linked. Made by `region`."""

    def __init__(self, made: Made) -> None:
        self._members: dict[str, tuple[RunningMember, AsyncExitStack]] = {}
        self._settings = {
            member.name: load(made.folder(member).config).model_copy(update={"metrics": None})
            for member in made.members
        }
        self._gateways = [member.name for member in made.members if member.role is Role.GATEWAY]
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(tell_unless_gone)
        self._thread = threading.Thread(target=self._loop.run_forever, name="veilmq-region", daemon=True)
        self._thread.start()

    def port(self, gateway: str = "g1") -> int:
        """Returns the port on 127.0.0.1 at which any MQTT client may connect to a gateway."""
        return self._members[gateway][0].broker.port("default")

    def start(self, *names: str) -> None:
        """Starts members with the files that they have, and returns once all that run are linked. Raises StartError."""
        self._wait_for(self._start_members(names))

    def stop(self, *names: str) -> None:
        """Stops members, which keep their files. A region bears the loss of fewer than half of its replicas."""
        for name in names:
            self._wait_for(self._members.pop(name)[1].aclose())

    def close(self) -> None:
        """Stops all members, gateways first."""
        self.stop(*reversed(self._members))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start_members(self, names: Sequence[str]) -> None:
        for name in names:
            async with AsyncExitStack() as ends:
                self._members[name] = await start_member(self._settings[name], ends), ends.pop_all()
        end = time.monotonic() + START_S
        while waiting := self._unlinked():
            if time.monotonic() > end:
                raise StartError(f"{', '.join(waiting)}: not linked after {START_S:.0f} s; `veilmq up` shows the cause")
            await asyncio.sleep(LOOK_S)

    def _unlinked(self) -> list[str]:
        """Returns gateways that lack a link to a replica that runs."""
        replicas = self._members.keys() - self._gateways
        running = [name for name in self._gateways if name in self._members]
        return [name for name in running if replicas - set(self._members[name][0].links.parts.dials.connected_peers)]


@contextmanager
def region(
    directory: Path | None = None, *, replicas: int = 3, gateways: int = 2, protect: Sequence[str] = ("plant/#",)
) -> Iterator[RunningRegion]:
    """Makes and runs a region whose gateways may publish and read `protect`, sealed, and accept any client on loopback.

    `directory`: new or empty, for the files of all members; without it they are gone at the end. Raises SetupError,
    StartError.
    """
    with ExitStack() as ends:
        if directory is None:
            directory = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="veilmq-"))) / "region"
        plan = Plan(replicas=replicas, gateways=gateways, protect=tuple(protect))
        port = random.SystemRandom().choice(FIRST_PORTS)
        running = RunningRegion(make_overlay(directory, plan, port, time.time()))
        ends.callback(running.close)
        running.start(*plan.member_roles)
        yield running
