"""The list of a live reader and the list of a late one are equal: the heart of the history.

Random schedules with liars, restarts, epochs' bumps, views and trees, drawn from a seed.

Source: docs/protocol-options.md §12.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from bridge.contract import (
    HISTORY_TOPIC,
    Body,
    Deliver,
    Effect,
    Event,
    HistoryPage,
    Keep,
    Offered,
    ReadAgain,
    Restored,
    Send,
    Subscribed,
    Wire,
    encode_body,
    read_page,
)
from bridge.contract.machine import Machine
from bridge.document import History, Overlay, Scope
from bridge.membership.adopting import canonical
from bridge.topology import peers_of
from keys.envelope import Mode
from keys.errors import BadFrame
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.seldom import in_turn, slow
from tests.sim.changing import changed, regrown
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

KEPT = History(7, 100)
LIES = ("honest", "empty", "omit", "alter", "shares", "twice", "silent", "slow", "garbage", "eras", "backwards")


class PageLiar:
    """A replica that is honest but for the pages that it hands out."""

    def __init__(self, node: Machine, lie: str, rng: random.Random) -> None:
        self._node, self._lie, self._rng = node, lie, rng
        self._before: list[bytes] = []
        self._later: list[tuple[float, Send]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    @property
    def next_deadline(self) -> float | None:
        own = [at for at, _ in self._later]
        theirs = self._node.next_deadline
        return min([*own, *([theirs] if theirs is not None else [])], default=None)

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects: list[Effect] = []
        for effect in self._node.handle(event, now):
            if isinstance(effect, Send) and effect.wire.topic == HISTORY_TOPIC:
                effects += self._falsified(effect, now)
            else:
                effects.append(effect)
        effects += [send for at, send in self._later if at <= now]
        self._later = [(at, send) for at, send in self._later if at > now]
        return effects

    def _falsified(self, send: Send, now: float) -> list[Effect]:
        page, bodies = read_page(send.wire.payload)
        match self._lie:
            case "silent":
                return []
            case "slow":
                self._later.append((now + 4.5, send))
                return []
            case "garbage":
                return [replace(send, wire=Wire(HISTORY_TOPIC, send.wire.payload[:12] + b"\1"))]
            case "eras" if page.eras is not None:
                moved = tuple(sorted((max(0, at + self._rng.randrange(200_000) - 100_000), d) for at, d in page.eras))
                return [_sent(send, replace(page, eras=moved))]
        if page.eras is not None or page.document is not None:
            return [send]
        told = [encode_body(*body) for body in bodies]
        match self._lie:
            case "empty":
                page, told = replace(page, keys=(), is_end=True), []
            case "omit":
                told = [body for body in told if self._rng.random() < 0.5]
            case "alter":
                told = [encode_body(*_altered(body)) for body in bodies]
            case "shares":
                keys = tuple((key, shares[:-1] + bytes([shares[-1] ^ 1])) for key, shares in page.keys)
                page = replace(page, keys=keys)
            case "twice":
                self._before = told or self._before
                told = [*told, *self._before]
            case "backwards":
                told = told[::-1]
        return [_sent(send, replace(page, bodies=tuple(told)))]


def _sent(send: Send, page: HistoryPage) -> Send:
    return replace(send, wire=Wire(HISTORY_TOPIC, page.encode()))


def _altered(body: Body) -> Body:
    return body._replace(pieces={index: piece[:-1] + bytes([piece[-1] ^ 1]) for index, piece in body.pieces.items()})


def a_world(seed: int, mode: Mode = Mode.COPIES, sizes: tuple[int, int] = (3, 3), regions: int = 2) -> World:
    scopes = [Scope("plant/#", mode, history=KEPT), Scope("open/#")]
    gateways = {"site": 1, "desk": regions, "late": regions}
    if regions == 1:
        return make_world({1: sizes[0]}, [], gateways, scopes, seed)
    return make_world({1: sizes[0], 2: sizes[1]}, [(1, 2)], gateways, scopes, seed)


def lying(world: World, rng: random.Random, lies: dict[str, str]) -> Kernel:
    """A kernel in which these replicas lie in the pages that they hand out."""
    kernel = world.kernel(rng)
    for name, lie in lies.items():
        maker = world.maker(name, rng)
        kernel._makers[name] = lambda maker=maker, lie=lie: PageLiar(maker(), lie, rng)  # type: ignore[misc]
        kernel.nodes[name] = kernel._makers[name]()
    return kernel


def publish_some(kernel: Kernel, rng: random.Random, until: float, count: int = 30) -> Traffic:
    traffic = Traffic("site")
    for at in sorted(rng.uniform(NOW + 4, until) for _ in range(count)):
        payload = rng.randbytes(rng.choice((3, 40, 600, 6000)))
        traffic.publish(kernel, at, f"plant/{rng.randrange(3)}", payload, qos=rng.choice((1, 1, 2)))
    return traffic


def reread(kernel: Kernel, world: World, at: float, since: float = NOW, number: int = 7) -> None:
    scope = world.overlay.policy.scopes[0].number
    kernel.plan_event(at, "late", ReadAgain(number, scope, int(since * 1000)))


def told(delivered: Sequence[Deliver]) -> dict[str, list[tuple[int, bytes, int]]]:
    """What was delivered, by topic, in order."""
    found: dict[str, list[tuple[int, bytes, int]]] = defaultdict(list)
    for each in delivered:
        found[each.publication.topic].append((each.sequence, each.publication.payload, each.publication.qos))
    return found


def check_alike(kernel: Kernel, traffic: Traffic, number: int = 7) -> None:
    live, late = kernel.trace.delivered.get("desk", []), kernel.trace.reread.get(number, [])
    assert number in kernel.trace.reread_done, "the reading did not end"
    check_safety(traffic.published, late)
    assert len(live) == len(traffic.published), "the live reader has not all: nothing to compare with"
    assert told(late) == told(live)


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize("regions", [1, 2])
def test_a_late_reader_has_what_a_live_one_had(mode: Mode, regions: int) -> None:
    rng = random.Random(f"{mode}{regions}")
    world = a_world(3, mode, regions=regions)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 30)
    reread(kernel, world, NOW + 5_000)
    kernel.run(NOW + 5_030)
    check_alike(kernel, traffic)
    assert not kernel.trace.named_members()


@pytest.mark.parametrize(("lie", "size"), in_turn(LIES, [3, 5]))
def test_up_to_f_liars_change_nothing(lie: str, size: int) -> None:
    rng = random.Random(f"{lie}{size}")
    world = a_world(5, sizes=(3, size))
    liars = [f"r2{letter}" for letter in "abc"[: (size - 1) // 2]]
    kernel = lying(world, rng, dict.fromkeys(liars, lie))
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 20)
    reread(kernel, world, NOW + 4_000)
    kernel.run(NOW + 4_120)
    check_alike(kernel, traffic)
    check_blame(kernel.trace.named_members(), liars)
    if lie in ("alter", "garbage", "twice", "backwards"):
        assert kernel.trace.suspected() & set(liars)


@pytest.mark.attack(184)
def test_what_a_liar_hands_out_is_charged_to_no_link() -> None:
    """Its records are judged when a page of an honest replica comes, too: that one's link was charged for them."""
    rng = random.Random(7)
    world = a_world(6)
    kernel = lying(world, rng, {"r2a": "alter"})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 20)
    reread(kernel, world, NOW + 4_000)
    kernel.run(NOW + 4_120)
    check_alike(kernel, traffic)
    assert kernel.trace.figures["history_misfit{content}"] > 15
    assert not kernel.nodes["late"]._links.charged  # type: ignore[attr-defined]


def adopt(kernel: Kernel, world: World, overlay: Overlay) -> None:
    """The owner's next version reaches somebody, and spreads."""
    world.overlay = overlay
    kernel.call("r1a", lambda node, now: node.offered(canonical(overlay), now))  # type: ignore[attr-defined]


def change(kernel: Kernel, world: World, what: str, rng: random.Random) -> None:
    """One of the things that may happen to an overlay while it runs."""
    old, now = world.overlay, kernel.now
    match what:
        case "bump":
            bump = old.policy.scopes[0].bump + 1
            world.learn(world.keys, (0,), bump)
            adopt(kernel, world, world.revoked("nobody", 0, bump))
        case "tree":
            edges = ((1, 2), (2, 3)) if (1, 3) in old.policy.edges else ((1, 3), (3, 2))
            adopt(kernel, world, regrown(world, old, edges, now))
        case "attach" | "attach here":
            region = 1 if what == "attach" else 2
            name = f"r{region}x{old.policy.version}"
            members = (*old.latest[region].members, name)
            adopt(kernel, world, changed(world, old, region, members, now, 5))
            kernel.add_node(name, world.maker(name, rng), peers_of(world.overlay, name))
        case "detach":
            members = old.latest[1].members
            if len(members) > 3:
                adopt(kernel, world, changed(world, old, 1, (*members[:2], *members[3:]), now, 5))
        case "restart":
            name = rng.choice(["r2a", "r2b", "r2c"])
            kernel.crash(name)
            kernel.restart(name)
    kernel.run(now + 12)


CHANGES = ("bump", "tree", "attach", "detach", "restart")


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_whatever_happens_inside_the_span(seed: int) -> None:
    rng = random.Random(seed)
    mode = rng.choice((Mode.COPIES, Mode.PLAIN))
    scopes = [Scope("plant/#", mode, history=KEPT), Scope("open/#")]
    gateways = {"site": 1, "desk": 2, "late": 2}
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 3), (3, 2)], gateways, scopes, seed)
    lies = {rng.choice(("r2a", "r2b", "r2c")): rng.choice(LIES)} if seed % 3 else {}
    kernel = lying(world, rng, lies)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 80, 50)
    kernel.run(NOW + 10)
    for _ in range(5):
        change(kernel, world, rng.choice(CHANGES if lies else (*CHANGES, "attach here")), rng)
    reread(kernel, world, NOW + 1_000)
    kernel.run(NOW + 1_200)
    check_alike(kernel, traffic)
    check_blame(kernel.trace.named_members(), lies)


def test_order_is_that_of_positions_for_each_topic() -> None:
    rng = random.Random(1)
    world = a_world(9)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 20)
    reread(kernel, world, NOW + 3_000)
    kernel.run(NOW + 3_030)
    for topic in told(kernel.trace.reread[7]).values():
        assert all(one[0] < other[0] for one, other in pairwise(topic))


def test_a_reader_whose_right_ended_gets_nothing() -> None:
    rng = random.Random(2)
    world = a_world(11)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 20)
    kernel.run(NOW + 60)
    revoked = world.revoked("late", -1)
    for name in world.overlay.members:
        if name != "late":
            kernel.plan_event(NOW + 61, name, Offered(canonical(revoked)))
    kernel.run(NOW + 61.5)
    reread(kernel, world, NOW + 61.6)
    kernel.run(NOW + 100)
    assert not kernel.trace.reread.get(7)
    assert kernel.trace.figures.get("history_sent", 0) == 0


def test_a_page_that_is_none_is_refused() -> None:
    with pytest.raises(BadFrame):
        read_page(b"\1\x2c\0" + bytes(7))


class Disk:
    """A gateway that keeps rows, as the shell does."""

    def __init__(self, node: Machine, rows: dict[bytes, bytes]) -> None:
        self._node, self._rows = node, rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    @property
    def next_deadline(self) -> float | None:
        return self._node.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = self._node.handle(event, now)
        for effect in effects:
            if isinstance(effect, Keep):
                for key, row in effect.rows:
                    if row is None:
                        self._rows.pop(key, None)
                    else:
                        self._rows[key] = row
        return effects


def living(world: World, rng: random.Random, lies: dict[str, str]) -> tuple[Kernel, dict[bytes, bytes]]:
    kernel, rows = lying(world, rng, lies), dict[bytes, bytes]()
    maker = world.maker("desk", rng)
    kernel._makers["desk"] = lambda: Disk(maker(), rows)
    kernel.nodes["desk"] = kernel._makers["desk"]()
    return kernel, rows


def come_back(kernel: Kernel, rows: dict[bytes, bytes]) -> None:
    kernel.restart("desk")
    kernel.plan_event(kernel.now, "desk", Restored(tuple(rows.items())))
    kernel.plan_event(kernel.now, "desk", Subscribed("plant/#"))


@pytest.mark.parametrize("lie", ["omit", *slow(["honest", "shares", "silent"])])
def test_a_gateway_that_was_away_for_hours_goes_on_where_it_was(lie: str) -> None:
    rng = random.Random(lie)
    world = a_world(21)
    kernel, rows = living(world, rng, {"r2b": lie})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 12_000, 150)
    kernel.run(NOW + 1_500)
    before = len(kernel.trace.delivered["desk"])
    assert before
    kernel.crash("desk")
    kernel.run(NOW + 11_000)
    come_back(kernel, rows)
    kernel.run(NOW + 11_100)
    assert kernel.trace.figures["read_on"] == 1
    kernel.run(NOW + 12_060)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    assert not any(each.late for each in delivered)
    assert b"t" not in {key[:1] for key in rows}
    check_blame(kernel.trace.named_members(), {"r2b"})


def test_a_gateway_that_dies_again_meanwhile_goes_on_where_it_was_then() -> None:
    rng = random.Random(4)
    world = a_world(22)
    kernel, rows = living(world, rng, {})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 9_000, 200)
    kernel.run(NOW + 1_000)
    kernel.crash("desk")
    kernel.run(NOW + 8_000)
    for pause_s in (0.9, 1.1, 1.3, 60):
        come_back(kernel, rows)
        kernel.run(kernel.now + pause_s)
        if pause_s < 2:
            kernel.crash("desk")
            kernel.run(kernel.now + 5)
    kernel.run(NOW + 9_060)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)


def test_a_scope_without_a_history_is_as_before() -> None:
    rng = random.Random(5)
    world = make_world({1: 3}, [], {"site": 1, "desk": 1}, [Scope("plant/#")])
    kernel, rows = living(world, rng, {})
    subscribe(kernel, "desk", "plant/#")
    publish_some(kernel, rng, NOW + 300, 40)
    kernel.run(NOW + 100)
    kernel.crash("desk")
    kernel.run(NOW + 8_000)
    come_back(kernel, rows)
    kernel.run(NOW + 8_030)
    assert "read_on" not in kernel.trace.figures
    assert not kernel.histories


def test_a_gateway_that_was_cut_off_for_hours_goes_on_where_it_was() -> None:
    rng = random.Random(6)
    world = a_world(23)
    kernel, _ = living(world, rng, {})
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 9_000, 200)
    kernel.run(NOW + 1_000)
    for replica in ("r2a", "r2b", "r2c"):
        kernel.cut("desk", replica)
    kernel.run(NOW + 8_000)
    for replica in ("r2a", "r2b", "r2c"):
        kernel.heal("desk", replica)
    kernel.run(NOW + 9_060)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    assert kernel.trace.figures["read_on"] == 1
