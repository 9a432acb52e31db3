"""Three brokers of three trust domains trace one entity: one that lies, dies or is cut off kills nobody, and it dies
once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from bridge.traces.kinds import TraceKind
from bridge.tracking.entity import Stage, Wishes
from bridge.tracking.tracker import Observed
from bridge.tracking.witnessing import Level
from gateway.tracing.client import TracedEntity, Tracker
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from keys.errors import OurFault
from keys.identity import Role
from tests.forking import Process, run
from tests.gateway.overlay_processes import ENVIRONMENT
from tests.gateway.test_links_between_members import Proxy
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = pytest.mark.invariant(47)

K = TraceKind
WITHIN_S = 6.0
HONEST = "from gateway.cli import main; main()"
LIAR = """
from bridge.traces.kinds import TraceKind
from bridge.traces.telling import Voice
from gateway.cli import main
honest = Voice.tell_trace
SWAPPED = {TraceKind.ALLS_WELL: TraceKind.FAILED, TraceKind.FAILED: TraceKind.ALLS_WELL}

def lie(self, kind, fields, now, to=None, **more):
    return honest(self, SWAPPED.get(kind, kind), fields, now, to if kind not in SWAPPED else None, **more)

Voice.tell_trace = lie
main()
"""
ENTITY = """
import sys, time
from bridge.tracking.entity import Wishes
from gateway.tracing.client import TracedEntity
with TracedEntity(sys.argv[1], sys.argv[2:], wishes=Wishes(("desk",), secured=True)) as entity:
    entity.state("READY")
    time.sleep(120)
"""


class Brokers:
    """Three of them, each of a trust domain of its own; entities are of a fourth."""

    def __init__(self, path: Path) -> None:
        now = time.time()
        self.path, self.ports = path, free_ports(3)
        self.reached = self.addresses  # where the entity reaches them
        self.works = TrustDomain.create(path / "works", "works", now)
        names = [f"w{number}" for number in range(3)]
        for name in names:
            domain = TrustDomain.create(path / f"domain-{name}", f"operator-{name}", now)
            domain.issue(name, Role.GATEWAY, ("127.0.0.1",), path / name, now)
        self.cards = [Card.load(path / name / "card.json") for name in names]
        for name, port in zip(names, self.ports, strict=True):
            others = [f"{other}/card.json" for other in names if other != name]
            asked = [address for address in self.addresses if not address.endswith(f":{port}")]
            traces = {"authority": "works/ca.pem", "identity": name, "nodes": others, "detect_within_s": WITHIN_S}
            config = {
                "listeners": {"default": {"bind": f"127.0.0.1:{port}"}},
                "allow_anonymous": True,
                "traces": {**traces, "other_witnesses": {"brokers": asked}},
            }
            (path / f"{name}.yaml").write_text(yaml.safe_dump(config))
        self.running: list[Process] = []

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def credentials(self, name: str) -> Path:
        Credentials.issue(self.works, name, self.cards, self.path / name, time.time())
        return self.path / name

    def start(self, *programs: str) -> None:
        for number, program in enumerate(programs):
            log = self.path / f"w{number}.log"
            command = ["-c", program, "broker", "-c", f"w{number}.yaml"]
            self.running.append(run(command, self.path, ENVIRONMENT, log, log))
        for port in self.ports:
            assert wait_until(lambda port=port: listens(port), 60)  # type: ignore[misc]

    def entity(self, name: str) -> Process:
        command, log = ["-c", ENTITY, str(self.credentials(name)), *self.reached], self.path / f"{name}.log"
        self.running.append(run(command, None, ENVIRONMENT, log, log))
        assert wait_until((self.path / name / "topic.bin").exists, 60)
        return self.running[-1]

    def stop(self) -> None:
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def a_link(port: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """An address that leads to this port, and what ends that without a word at either side."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    proxy = Proxy()

    async def run() -> None:
        async with proxy.between(port):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield f"127.0.0.1:{proxy.port}", proxy.swallow
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def until(tracker: Tracker, done: Callable[[Observed], bool], seconds: float = 30) -> list[Observed]:
    """All that comes up to what is waited for."""
    passed: list[Observed] = []
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        seen = tracker.next(left_s)
        if seen is not None:
            passed.append(seen)
            if done(seen):
                return passed
    raise AssertionError(f"it did not come; came: {[each.kind.name for each in passed]}")


def kinds(seen: Sequence[Observed]) -> set[TraceKind]:
    return {each.kind for each in seen}


def heartbeats(count: int) -> Callable[[Observed], bool]:
    counted = iter(range(1, 1 << 30))
    return lambda seen: seen.kind is K.ALLS_WELL and next(counted) >= count


def test_a_witness_that_says_the_contrary_is_outvoted_and_named(brokers: Brokers) -> None:
    brokers.start(HONEST, HONEST, LIAR)
    pump = brokers.entity("pump")
    with Tracker(brokers.credentials("desk"), brokers.addresses) as desk:
        desk.follow("pump")
        lived = until(desk, heartbeats(4))
        assert not kinds(lived) & {K.FAILED, K.FAILURE_SUSPICION, K.DISCONNECT}
        assert [seen.kind for seen in lived].count(K.READY) == 1
        assert wait_until(lambda: [each.level for each in desk.opinions("pump") if each.dissents] == [Level.FAILED])
        pump.send_signal(signal.SIGSTOP)
        failed = until(desk, lambda seen: seen.kind is K.FAILED)[-1]
        assert failed.fields["of"] == 3
        assert len(failed.fields["witnesses"]) == 2
        assert {0, 1} & set(failed.fields["witnesses"]), "an honest one says so"
        pump.send_signal(signal.SIGCONT)
        until(desk, lambda seen: seen.fields.get("after") == "failed")


@pytest.mark.slow
def test_a_witness_that_loses_its_link_or_dies_is_no_failure_and_the_entitys_death_is_one(brokers: Brokers) -> None:
    brokers.start(HONEST, HONEST, HONEST)
    with (
        a_link(brokers.ports[0]) as (address, cut),
        Tracker(brokers.credentials("desk"), brokers.addresses) as desk,
    ):
        brokers.reached[0] = address
        pump = brokers.entity("pump")
        desk.follow("pump")
        until(desk, heartbeats(1))
        cut()
        silent = time.monotonic()
        lived = until(desk, lambda seen: time.monotonic() > silent + 1.5 * WITHIN_S)
        assert [each.level for each in desk.opinions("pump")] == [Level.SUSPECTED, Level.ALIVE, Level.ALIVE], (
            "for longer than a death takes to be told, since it answers through the others"
        )
        brokers.running[0].kill()
        lived += until(desk, heartbeats(2))
        assert not kinds(lived) & {K.FAILED, K.FAILURE_SUSPICION, K.DISCONNECT}
        pump.kill()
        died = until(desk, lambda seen: seen.kind is K.FAILED)
        assert K.DISCONNECT in kinds(died)
        assert [each.level for each in desk.opinions("pump")][1:] == [Level.FAILED] * 2
        rest = [seen for seen in iter(lambda: desk.next(1), None) if seen.kind is not K.NETWORK_METRICS]
        assert rest == []


def test_an_entity_that_may_not_count_its_witnesses_is_told_so_at_once(brokers: Brokers) -> None:
    credentials = brokers.credentials("pump")
    with pytest.raises(OurFault, match="majority"):
        TracedEntity(credentials, brokers.addresses[:2])
    with pytest.raises(TrustError, match="HOST:PORT"):
        TracedEntity(credentials, ["a:b", "c", "d"])
    alone = TracedEntity(credentials, ["[::1]", ("c", 1), "d:2"], 1884, wishes=Wishes())
    assert alone._addresses == [("::1", 1884), ("c", 1), ("d", 2)]
    assert alone.stage is Stage.WITHOUT_TOPIC
