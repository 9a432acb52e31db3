"""The rows of `broker.py`: what is done, with how many clients, and which ratio to a peer is the goal.

Each is one run of the generator in C (`native.py`), but for idle connections (`crowd.py`). Rows without a goal are
there to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench import crowd, load, native
from tests.bench.native import Outcome
from tests.bench.peers import AMQTT, MOSQUITTO, PACKAGED, Running

FAN = 50
PAIRS = 10
RATE = 5_000
IDLE = 5_000
RETAINED = 20_000
#: QoS 0 messages on their way: enough to keep a broker busy, fewer than any of them drops for a slow receiver.
AHEAD = 800
MESSAGES, DELIVERIES, MICROSECONDS, BYTES, CONNECTS = "msg/s", "deliveries/s", "us", "bytes", "connects/s"
DELIVERED, ACKNOWLEDGED, P99 = "delivered_s", "acknowledged_s", "p99_us"


@dataclass(frozen=True)
class Load:
    """One run against one broker: how long, and on which core the clients are."""

    seconds: float
    core: int


@dataclass(frozen=True)
class Target:
    """The ratio to reach (`is_least`) or to stay below; None: there is no goal."""

    ratio: float | None
    is_least: bool = True

    def is_met(self, ratio: float) -> bool | None:
        if self.ratio is None:
            return None
        return ratio >= self.ratio if self.is_least else ratio <= self.ratio

    def __str__(self) -> str:
        return "" if self.ratio is None else f"{'>=' if self.is_least else '<='} {self.ratio:g} x"


NO_GOAL = Target(None)


@dataclass(frozen=True)
class Row:
    """One line of the table. `targets`: peer -> ours / peer."""

    name: str
    work: str
    unit: str
    run: Callable[[Running, Load], Outcome]
    targets: dict[str, Target] = field(default_factory=lambda: {MOSQUITTO: NO_GOAL})
    is_durable: bool = False
    has_tls: bool = False


def _at_least(ratio: float) -> dict[str, Target]:
    return {MOSQUITTO: Target(ratio)}


def _at_most_of_each(ratio: float) -> dict[str, Target]:
    """Of a figure in which two versions of Mosquitto differ much."""
    return {name: Target(ratio, is_least=False) for name in (MOSQUITTO, PACKAGED)}


def _at_most(ratio: float) -> dict[str, Target]:
    return {MOSQUITTO: Target(ratio, is_least=False)}


def _flow(figure: str = DELIVERED, **settings: int) -> Callable[[Running, Load], Outcome]:
    def run(broker: Running, how: Load) -> Outcome:
        ms = int(how.seconds * 1000)
        return native.call("flow", figure, how.core, port=broker.port, pid=broker.pid, ms=ms, **settings)

    return run


def _connects(tls: int) -> Callable[[Running, Load], Outcome]:
    def run(broker: Running, how: Load) -> Outcome:
        port, ms = broker.port, int(how.seconds * 1000)
        return native.call("connect", "connects_s", how.core, port=port, ms=ms, publishers=32, tls=tls)

    return run


def _retained(qos: int) -> Callable[[Running, Load], Outcome]:
    def run(broker: Running, how: Load) -> Outcome:
        port = broker.port
        return native.call("retained", DELIVERED, how.core, port=port, publishers=RETAINED, window=100, qos=qos)

    return run


def idle_connections() -> int:
    """As many as `IDLE`, or as this process may open."""
    return min(IDLE, crowd.allowed_files() - crowd.SPARE_FILES)


def _idle(broker: Running, how: Load) -> Outcome:
    number = idle_connections()
    return Outcome(float(load.in_process(crowd.idle_bytes, broker, number, how.core)), 0.0)


#: Ratios to Mosquitto that are goals, by QoS, window and publishers.
_WINDOWED_GOALS = {
    (1, 100, 1): 2.0,
    (1, 1, 1): 0.85,
    (1, 1, 100): 1.2,
    (1, 1, 500): 1.0,
    (1, 10, 100): 1.0,
    (1, 10, 500): 1.0,
}
#: Rows of a fleet's ordinary day, many publishers and one reader first; the rows of `broker_scale.py` belong to them.
FLEET: tuple[str, ...] = (
    "q1-w10-p500",
    "q1-w1-p500",
    "q1-w10-p100",
    "q1-w1-p100",
    "q1-w1-p1",
    "q1-w100-p1",
    "flood",
    "fanout",
    "all",
)
FLEET += ("idle",)
#: Rows in which a message costs little beside the sockets that it comes by.
SOCKETS = ("q1-w1-p1", "q1-w1-p100", "q1-w1-p500")


def _windowed() -> list[Row]:
    found = []
    for qos in (0, 1, 2):
        for window in (1, 10, 100):
            for publishers in (1, 100, 500):
                goal = _WINDOWED_GOALS.get((qos, window, publishers))
                work = f"QoS {qos}, {publishers} -> 1, {window} in flight each"
                run = _flow(qos=qos, window=window, publishers=publishers)
                name = f"q{qos}-w{window}-p{publishers}"
                found.append(Row(name, work, MESSAGES, run, {MOSQUITTO: Target(goal)}))
    return found


def rows() -> list[Row]:
    """The table, in its order."""
    fast, paced = {MOSQUITTO: Target(2), AMQTT: Target(30)}, f"p99 latency, {RATE:,} msg/s"
    fanned = {MOSQUITTO: Target(10), AMQTT: Target(30)}
    kept = "persistent session, QoS 1, 100 in flight"
    pairs = {"publishers": PAIRS, "subscribers": PAIRS}
    one_way = {"qos": 1, "window": 100}
    return [
        Row("flood", "QoS 0, 1 -> 1, written in batches", MESSAGES, _flow(window=AHEAD, batch=1), fast),
        Row("fanout", f"QoS 0, 1 -> {FAN}", DELIVERIES, _flow(window=AHEAD, subscribers=FAN, batch=1), fanned),
        *_windowed(),
        Row("fan-in", f"QoS 1, {FAN} -> 1, 10 in flight each", MESSAGES, _flow(qos=1, window=10, publishers=FAN)),
        Row("pairs", f"QoS 0, {PAIRS} -> {PAIRS}, 10 in flight each", MESSAGES, _flow(window=10, pairs=1, **pairs)),
        Row(
            "all",
            f"QoS 0, {PAIRS} -> {PAIRS}, one topic each, all to all",
            DELIVERIES,
            _flow(window=10, **pairs),
            _at_least(10),
        ),
        Row("large0", "QoS 0, 4 KiB, 1 -> 1, 100 in flight", MESSAGES, _flow(window=100, payload=4096), _at_least(1)),
        Row("large1", "QoS 1, 4 KiB, 1 -> 1, 100 in flight", MESSAGES, _flow(payload=4096, **one_way), _at_least(1)),
        Row("latency", f"{paced}, 10 -> 10", MICROSECONDS, _flow(P99, rate=RATE, pairs=1, **pairs), _at_most(1.5)),
        Row("latency-all", f"{paced}, 10 -> 1", MICROSECONDS, _flow(P99, rate=RATE, publishers=10), _at_most(1.5)),
        Row("retained0", f"{RETAINED:,} retained, QoS 0", DELIVERIES, _retained(0)),
        Row("retained1", f"{RETAINED:,} retained, QoS 1", DELIVERIES, _retained(1)),
        Row("idle", f"memory, each of {idle_connections():,} idle", BYTES, _idle, _at_most_of_each(2.5)),
        Row("connect", "CONNECT, 32 at a time", CONNECTS, _connects(0)),
        Row("connect-tls", "the same over TLS, no resumption", CONNECTS, _connects(1), _at_least(0.5), has_tls=True),
        Row("kept", kept, MESSAGES, _flow(kept=1, **one_way)),
        Row("durable", f"durable: {kept}", MESSAGES, _flow(kept=1, **one_way), _at_least(0.5), is_durable=True),
        Row(
            "durable-away",
            "the same, the receiver away",
            MESSAGES,
            _flow(ACKNOWLEDGED, kept=1, away=1, **one_way),
            _at_least(0.5),
            is_durable=True,
        ),
    ]
