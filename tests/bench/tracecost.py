"""What tracing costs, as the rows of Table 3 of the paper on traces (2:295-335), each beside a plain message.

An entity's gateway, regions of replicas, a tracker's gateway: with r regions a trace passes r + 1 links between
brokers, and that is what is called hops here. `of 1` are single trusted brokers, as the paper's, `of 3` regions of
three, of which one may lie. A trace takes from `load` of the entity's library to `next` of the tracker's; a plain
message is a QoS 1 publication of paho, in a scope that is signed and not sealed, over the same brokers. Rows `at most
once` are the paper's over UDP: between programs and their brokers nothing is acknowledged or sent again (QoS 0), but it
is TCP that carries it, for MQTT has no other. Figures are medians over `ROUNDS` rounds of medians, and in each round
plain messages and traces take turns. Nothing is pinned: an overlay is more processes than cores.

`paper` says the paper's ratio of the same figures: a row beside its own 2-hop row (72.68 ms over TCP, authorised), for
it measured no plain message. Of UDP it gives the ends, 2 and 6 hops.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.traces.kinds import EVERYTHING, Interest, TraceKind, trace_topic
from bridge.traces.tracer import Say
from bridge.tracking.entity import Stage, Told, Wishes
from gateway.tracing.client import TracedEntity, Tracker
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from keys.delegation import Advertisement, Delegated, Token, Trace
from keys.identity import Certificate, Identity, Role
from tests.bench.growth import Row
from tests.bench.herd import Traced
from tests.bench.load import READ_BYTES, open_client, subscribe
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.traced_site import Site, observed
from tests.support.files import edited
from tests.waits import wait_until

MESSAGES = 40
WARM_UP = 5
PAUSE_S = 0.02
ROUNDS = 3
PUMPS = [f"pump{number}" for number in range(5 * ROUNDS)]  # entities of an overlay, each followed once
CALLS = 300  # of each cryptographic operation
TRACKERS = range(10, 101, 10)
SESSIONS = {
    "session sealed": Wishes(("desk",)),
    "session signed": Wishes(("desk",), signed=True),
    "sealed for trackers": Wishes(("desk",), secured=True),
}
WAIT_S = 60.0
SCOPE = "$Constrained/Traces/#"
PLAIN = "open/bench"
PAPER_MS = 72.68
ONCE = ", at most once"
PAPER_HOPS = {
    "authorised": {2: 72.68, 3: 79.45, 4: 86.4, 5: 93.99, 6: 100.81},
    "authorised and sealed": {2: 90.29, 3: 98.12, 4: 105.06, 5: 110.89, 6: 116.21},
    f"authorised{ONCE}": {2: 70.24, 6: 96.79},
    f"authorised and sealed{ONCE}": {2: 88.86, 6: 114.33},
}
PAPER_KEYS = {2: 81.53, 3: 114.16, 4: 140.79}
MICROSECONDS = "us"


# -------------------------------------------------------------------------------------------- cryptography


def crypto(plain_us: float) -> Iterator[Row]:
    """Operations of one trace, beside a plain message through one broker."""
    owner, holder, node = (Identity.generate(os.urandom(32)) for _ in range(3))
    now_ms, key = int(time.time() * 1000), os.urandom(32)
    certificate = Certificate.issue(
        owner, name="pump", role=Role.ENTITY, public_key=owner.public_bytes, agreement_key=owner.agreement_bytes,
        domain="works", region=0, not_after_ms=now_ms + 3_600_000,
    )  # fmt: skip
    advertisement = Advertisement(
        bytes(16), "Availability/Traces/pump", certificate, ("desk",), now_ms, now_ms + 3_600_000, "node"
    ).signed(node)
    bare = Token(bytes(16), holder.public_bytes, Delegated.PUBLISH, now_ms, now_ms + 600_000)
    token = bare.signed(owner)
    clear = Trace(token, TraceKind.LOAD_INFORMATION, 1, now_ms, b'{"cpu":0.25,"memory":0.5}')
    sealed = clear.sealed_under(key, os.urandom(12))
    signed, sealed_signed = clear.signed(holder), sealed.signed(holder)
    operations: dict[str, tuple[float, Callable[[], object]]] = {
        "token: made and signed": (
            27.19,
            lambda: Token(
                bytes(16), Identity.generate(os.urandom(32)).public_bytes, Delegated.PUBLISH, now_ms, now_ms + 600_000
            ).signed(owner),
        ),
        "token: verified": (2.01, lambda: token.verify(advertisement, Delegated.PUBLISH, now_ms)),
        "trace: encrypted": (0.25, lambda: clear.sealed_under(key, os.urandom(12))),
        "trace: decrypted": (1.15, lambda: sealed_signed.opened_body(key)),
        "trace: signed": (24.51, lambda: clear.signed(holder)),
        "trace: verified, its token too": (6.83, lambda: signed.verify(advertisement, now_ms)),
        "sealed trace: signed": (24.0, lambda: sealed.signed(holder)),
        "sealed trace: verified, its token too": (5.31, lambda: sealed_signed.verify(advertisement, now_ms)),
    }
    for name, (paper_ms, call) in operations.items():
        yield Row(name, _median_us(call), plain_us, _paper("plain, 1 broker", paper_ms), MICROSECONDS)


def _median_us(call: Callable[[], object]) -> float:
    took = []
    for _ in range(CALLS):
        begins = time.perf_counter()
        call()
        took.append((time.perf_counter() - begins) * 1e6)
    return statistics.median(took)


def _paper(peer: str, paper_ms: float | None) -> str:
    return peer if paper_ms is None else f"{peer} (paper {paper_ms / PAPER_MS:.3f})"


# ------------------------------------------------------------------------------------------------- parties


class Line(OverlayProcesses):
    """Members and owner admit single replicas if they are `trusted`."""

    def __init__(self, directory: Path, trusted: bool) -> None:
        super().__init__(directory)
        self._trusted = trusted

    def _write(self, name: str, content: Any) -> None:
        for region in content.get("regions", ()):
            region["trusted"] = self._trusted
        super()._write(name, content)

    def veilmq(self, *arguments: str) -> str:
        command = [sys.executable, "-c", "from gateway.cli import main; main()", *arguments]
        return subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=60, check=True
        ).stdout


class TimedTracker(Tracker):
    """`keys_us`: from saying what it wants to having the trace key."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.keys_us: list[float] = []
        self._asked = 0.0
        super().__init__(*arguments, **options)

    def _perform_effect(self, index: int | None, effect: Any) -> None:
        if isinstance(effect, Say) and effect.topic.endswith("/Interest"):
            self._asked = time.perf_counter()
        super()._perform_effect(index, effect)

    def _take_told(self, index: int, told: Told, now: float) -> Any:
        if told.topic.endswith("/Keys") and self._asked:
            self.keys_us.append((time.perf_counter() - self._asked) * 1e6)
            self._asked = 0.0
        return super()._take_told(index, told, now)


def plain_us(port_in: int, port_out: int) -> float:
    """Median time of a plain message from publisher to subscriber, both paho."""
    came, took = threading.Event(), list[float]()
    receiver, sender = (paho.Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
                        for name in ("plain-out", "plain-in"))  # fmt: skip
    subscribed = threading.Event()
    receiver.on_subscribe = lambda *arguments: subscribed.set()
    receiver.on_message = lambda *arguments: came.set()
    try:
        for client, port in ((receiver, port_out), (sender, port_in)):
            client.connect("127.0.0.1", port)
            client.loop_start()
        receiver.subscribe(PLAIN, 1)
        assert subscribed.wait(WAIT_S), "no SUBACK"
        until = time.monotonic() + WAIT_S
        while not came.is_set():  # replicas learn of the subscription in their time
            assert time.monotonic() < until, "nothing comes through"
            sender.publish(PLAIN, b"probe", 1)
            came.wait(0.5)
        time.sleep(1.0)
        for _ in range(WARM_UP + MESSAGES):
            came.clear()
            begins = time.perf_counter()
            sender.publish(PLAIN, bytes(64), 1)
            assert came.wait(WAIT_S), "a message did not come"
            took.append((time.perf_counter() - begins) * 1e6)
            time.sleep(PAUSE_S)
    finally:
        for client in (receiver, sender):
            client.disconnect()
            client.loop_stop()
    return statistics.median(took[WARM_UP:])


def trace_us(pump: TracedEntity, desk: Tracker) -> float:
    """Median time from `load` to the tracker's program."""
    took = []
    for number in range(WARM_UP + MESSAGES):
        begins = time.perf_counter()
        pump.load({"number": number})
        observed(desk, TraceKind.LOAD_INFORMATION, WAIT_S, number=number)
        took.append((time.perf_counter() - begins) * 1e6)
        time.sleep(PAUSE_S)
    return statistics.median(took[WARM_UP:])


def _at_most_once(party: TracedEntity | Tracker) -> None:
    """It says and hears with QoS 0."""
    for client in party._clients:
        subscribe, publish = client.subscribe, client.publish
        client.subscribe = lambda topic, qos, at=subscribe: at(topic, qos=0)  # type: ignore[method-assign,misc]
        client.publish = lambda topic, payload, qos, at=publish: at(topic, payload, 0)  # type: ignore[method-assign,misc]


@contextlib.contextmanager
def followed(
    pump_at: tuple[Path, int],
    desk_at: tuple[Path, int],
    wishes: Wishes,
    interest: Interest = EVERYTHING,
    once: bool = False,
) -> Iterator[tuple[TracedEntity, TimedTracker]]:
    """A traced entity, and a tracker that has heard of it. Each time another entity: of one that gets a new topic a
    node may still know the former."""
    pump = TracedEntity(pump_at[0], "127.0.0.1", pump_at[1], wishes=wishes)
    desk = TimedTracker(desk_at[0], "127.0.0.1", desk_at[1])
    for party in (pump, desk) if once else ():
        _at_most_once(party)
    with pump:
        assert wait_until(lambda: pump.stage is Stage.TRACED, WAIT_S)
        with desk:
            desk.follow(pump_at[0].name, interest)
            until = time.monotonic() + WAIT_S
            while True:
                pump.load({"number": -1})
                seen = desk.next(0.5)
                if seen is not None and seen.kind is TraceKind.LOAD_INFORMATION:
                    break
                assert time.monotonic() < until, "no trace comes"
            while desk.next(0.5) is not None:
                pass
            yield pump, desk


# --------------------------------------------------------------------------------------------------- rows


def one_broker(core: int) -> Iterator[Row]:
    """Cryptography, and trackers by tens, through one broker on that core."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        site = Site(Path(name))
        pumps, desk = (site.credentials(f"pump{number}") for number in itertools.count()), site.credentials("desk")
        broker = Traced(site, core, 2 * max(TRACKERS))
        port = broker.port
        try:
            plain, traces = list[float](), {what: list[float]() for what in SESSIONS}
            for _ in range(ROUNDS):
                plain.append(plain_us(port, port))
                for what, wishes in SESSIONS.items():
                    with followed((next(pumps), port), (desk, port), wishes) as (entity, tracker):
                        traces[what].append(trace_us(entity, tracker))
            yield from crypto(statistics.median(plain))
            for what, took in traces.items():
                yield _row(f"trace, 1 broker, {what}", took, plain, "plain, 1 broker")
            yield from _by_trackers(site, port)
        finally:
            broker.stop()


def _by_trackers(site: Site, port: int) -> Iterator[Row]:
    """One tracker measures, the others listen to the same trace topic and take what comes."""
    pump, desk = site.credentials("pump"), site.credentials("desk")
    with followed((pump, port), (desk, port), Wishes(("desk",))) as (entity, tracker), contextlib.ExitStack() as stack:
        own = entity.credentials.advertisement()
        assert own is not None
        topic, others = trace_topic(own.topic, Interest.LOAD), 1
        for number in TRACKERS:
            while others < number:
                sock = stack.enter_context(open_client(port, f"listener-{others}"))
                subscribe(sock, 0, topic)
                threading.Thread(target=_drain, args=(sock,), daemon=True).start()
                others += 1
            rounds = [(trace_us(entity, tracker), plain_us(port, port)) for _ in range(ROUNDS)]
            took, plain = ([one[place] for one in rounds] for place in range(2))
            yield _row(f"trace, 1 broker, {number} trackers", took, plain, "plain, 1 broker")


def _row(work: str, took: Sequence[float], plain: Sequence[float], peer: str) -> Row:
    return Row(work, statistics.median(took), statistics.median(plain), peer, MICROSECONDS)


def _drain(sock: Any) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(READ_BYTES):
            pass


@contextlib.contextmanager
def traced_line(regions: int, replicas: int) -> Iterator[OverlayProcesses]:
    """Two gateways that trace, regions of so many replicas on a line between them."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        directory, line = Path(name), [f"r{place + 1}-" for place in range(regions)]
        made = Line(directory, replicas == 1)
        made.make(dict.fromkeys(line, replicas), [*itertools.pairwise(line)], {"g1": line[0], "g2": line[-1]})
        made.describe(lambda content: content["scopes"].append({"filter": SCOPE}))
        for gateway, other in (("g1", "g2"), ("g2", "g1")):
            rights = ("--publish", SCOPE, "--read", SCOPE)
            made.veilmq("trust", "grant", "overlay.json", "--owner", "owner", "--member", gateway, *rights)
            with edited(directory / f"{gateway}.yaml") as content:
                content["overlay"]["protect"].append({"filter": SCOPE})
                content["traces"] = {"authority": "owner/ca.pem", "identity": gateway, "nodes": [f"{other}/card.json"]}
        made.hand_out(*made.ports)
        domain = TrustDomain.load(directory / "owner")
        cards = [Card.load(directory / gateway / "card.json") for gateway in ("g1", "g2")]
        for party in ("desk", *PUMPS):
            Credentials.issue(domain, party, cards, directory / party, time.time())
        try:
            made.start(*made.ports)
            yield made
        finally:
            made.stop()


def by_hops(regions: int, replicas: int) -> Iterator[Row]:
    """Traces and trace keys over so many regions of so many replicas."""
    hops, kinds = regions + 1, {name: ("sealed" in name, ONCE in name) for name in PAPER_HOPS}
    with traced_line(regions, replicas) as made:
        ports = made.ports["g1"], made.ports["g2"]
        pumps, desk = ((made.directory / name, ports[0]) for name in PUMPS), (made.directory / "desk", ports[1])
        plain, keys, traces = list[float](), list[float](), {what: list[float]() for what in kinds}
        for _ in range(ROUNDS):
            plain.append(plain_us(*ports))
            for what, (secured, once) in kinds.items():
                with followed(next(pumps), desk, Wishes(("desk",), secured=secured), once=once) as (entity, tracker):
                    traces[what].append(trace_us(entity, tracker))
                    keys += [] if once else tracker.keys_us
            with followed(next(pumps), desk, Wishes(("desk",), secured=True), Interest.LOAD) as (_, tracker):
                keys += tracker.keys_us
        over = f"{hops} hops of {replicas}"
        peer = f"plain, {over}"
        for what, took in traces.items():
            name = _paper(peer, PAPER_HOPS[what].get(hops))
            yield _row(f"trace, {what}, {over}", took, plain, name)
        yield _row(f"trace key given, {over}", keys, plain, _paper(peer, PAPER_KEYS.get(hops)))
