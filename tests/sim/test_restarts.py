"""A gateway that stops or is killed at any moment: everything once to QoS 2 clients, nothing lost, nothing replayed.

Replicas keep for it what it did not acknowledge, its disk what it asked to keep (`lives`). One replica a region lies.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.machine import Acked, Deliver, Event, Keep, Received, Restored, Subscribed, Tick, Wire
from bridge.document.policy import Refresh, Scope
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from bridge.wire.admission import KEPT_S
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.bridge.helpers import gateway, publish, subscriber
from tests.seldom import in_turn, slow
from tests.sim.changing import regrown
from tests.sim.lives import Lives
from tests.sim.world import NOW, Traffic, World, make_world

pytestmark = pytest.mark.invariant(32)

COUNT = 90
SHAPES = {
    "one region": ({1: 3}, [], 1),
    "two regions": ({1: 3, 2: 3}, [(1, 2)], 2),
}
LIES = [set(), {Behaviour.REPLAY, Behaviour.DUPLICATE}, {Behaviour.DROP}, {Behaviour.SHARES, Behaviour.CONTENT}]


def lives_of(world: World, rng: random.Random, filters: list[str]) -> Lives:
    plain = world.kernel(rng)
    kernel = Lives(plain._makers, plain._peers, rng, NOW, (0.001, 0.020))
    kernel.reader = ""
    kernel.start()
    kernel.begin("control", filters)
    return kernel


@pytest.mark.attack(2)
@pytest.mark.parametrize("lies", LIES, ids=lambda lies: "+".join(sorted(lie.value for lie in lies)) or "honest")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_every_life_of_a_gateway_goes_on_where_the_last_one_ended(seed: int, shape: str, lies: set[Behaviour]):
    sizes, edges, home = SHAPES[shape]
    rng = random.Random(f"{seed}{shape}{len(lies)}")
    on_topic = seed % 2 == 1
    scopes = [Scope("plant/#", refresh=Refresh(messages=16), keys_on_topic=on_topic), Scope("open/#", Mode.PLAIN)]
    world = make_world(sizes, edges, {"site": 1, "control": home}, scopes, seed=seed)
    liars = [f"r{region}{rng.choice('abc')}" for region in sizes] if lies else []
    world.liars = {name: frozenset(lies) for name in liars}
    kernel = lives_of(world, rng, ["plant/#", "open/#"])
    traffic = Traffic("site")
    when = NOW + 4.0
    for number in range(COUNT):
        when += rng.expovariate(20.0)
        topic = rng.choice(("plant/a", "plant/b", f"plant/new{number // 10}", "open/a"))
        payload = b"%d " % number + rng.randbytes(rng.choice((3, 400, 3000)))
        traffic.publish(kernel, when, topic, payload, qos=2, retain=rng.random() < 0.15)
    at = NOW + 4.0
    while at < when:
        at += rng.uniform(0.05, 1.5)
        kernel.run(at)
        kernel.stop() if rng.random() < 0.4 else kernel.kill()
        at += rng.choice((0.01, 0.3, 2.0, 20.0))
        kernel.run(at)
        kernel.revive()
    kernel.run(at + 120)
    check_safety(traffic.published, kernel.committed)
    check_liveness(traffic.published, kernel.committed)
    assert not kernel.replayed
    check_blame(kernel.trace.named_members(), liars)
    assert not kernel._kept["r1a"], "everything was acknowledged in the end"


AWAY_S = (5.0, 60.0, 1800.0, 3 * 3600.0, 2 * 86_400.0)


def wires_of(world: World, publisher: GatewayNode) -> list[tuple[float, dict[str, Wire]]]:
    """What an honest gateway sent over an hour, by replica: live, retained, in clear, and keys that came again."""
    found, last = [], dict[str, int]()
    for number in range(1, 60):
        topic = ("plant/a", "plant/b", "open/a", "plant/kept")[number % 4]
        now = NOW + 60.0 * number
        retain = topic == "plant/kept"
        wires = publish(
            publisher,
            topic,
            b"%d" % number,
            sequence=number,
            previous=last.get(topic.partition("/")[0], 0),
            now=now,
            retain=retain,
        )
        last[topic.partition("/")[0]] = number
        for peer in wires:
            publisher.handle(Acked(peer, number), now)
        found.append((now, wires))
    return found


@pytest.mark.attack(1)
@pytest.mark.parametrize("away_s", AWAY_S)
def test_what_a_liar_replays_after_a_restart_is_not_delivered_again(away_s: float):
    """Attack: a replica keeps all that it carried, and sends it to the subscriber's next lives: 5 s to two days later,
    in the order it came, newest first, and as if it was retained."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#"), Scope("open/#", Mode.PLAIN)])
    sent_wires = wires_of(world, gateway(world, "site"))
    node, rows = subscriber(world, "control"), dict[bytes, bytes]()
    got: list[Deliver] = []

    def handle(event: Event, now: float) -> None:
        for effect in node.handle(event, now):
            if isinstance(effect, Deliver):
                got.append(effect)
            elif isinstance(effect, Keep):
                for key, row in effect.rows:
                    rows.pop(key, None)
                    rows.update({key: row} if row is not None else {})

    for now, wires in sent_wires:
        for peer, wire in wires.items():
            handle(Received(peer, wire), now)
        handle(Tick(), now + 1)
    assert len(got) == len(sent_wires)
    carried = [wires["r1c"] for _, wires in sent_wires]
    flagged = [replace(wire, retain=True) for wire in carried]
    end = sent_wires[-1][0]
    for life, replayed in enumerate((carried, carried[::-1], flagged), 1):
        now = end + life * away_s
        node = gateway(world, "control")
        handle(Restored(tuple(rows.items())), now)
        handle(Subscribed("#"), now)
        for wire in replayed:
            handle(Received("r1c", wire), now)
        handle(Tick(), now + 30)
        assert len(got) == len(sent_wires)


@pytest.mark.attack(69)
@pytest.mark.parametrize("brought_by", [["r1c"], ["r1b", "r1c"]], ids=["a liar", "f + 1"])
def test_an_old_copy_of_a_readers_disk_lets_no_liar_replay_what_came_since(brought_by: list[str]):
    """Attack: the disk of a reader came back from a copy, or rows of it are lost, and a replica sends all that it
    carried since. What is older than what replicas keep takes f + 1 of them, as where an epoch is over."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [Scope("plant/#"), Scope("open/#", Mode.PLAIN)])
    sent_wires = wires_of(world, gateway(world, "site"))
    node, rows = gateway(world, "control"), dict[bytes, bytes]()
    copied = [(now, Received(peer, wire)) for now, wires in sent_wires[:10] for peer, wire in wires.items()]
    for now, event in [(NOW, Subscribed("#")), *copied]:
        for effect in node.handle(event, now):
            rows |= {key: row for key, row in effect.rows if row is not None} if isinstance(effect, Keep) else {}
    later = sent_wires[-1][0] + KEPT_S + 1
    again = gateway(world, "control")
    again.handle(Restored(tuple(rows.items())), later)
    again.handle(Subscribed("#"), later)
    live = [wires for _, wires in sent_wires[10:] if not wires["r1c"].retain]
    effects = [e for wires in live for peer in brought_by for e in again.handle(Received(peer, wires[peer]), later)]
    effects += again.handle(Tick(), later + 30)
    found = [effect for effect in effects if isinstance(effect, Deliver)]
    assert len(found) == (0 if len(brought_by) == 1 else len(live))


@pytest.mark.attack(79)
def test_a_reader_that_was_dead_while_the_tree_changed_and_the_former_one_was_closed_loses_nothing():
    """Its replicas keep for it what was sealed for the former tree until all publishers knew of the next one."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#")])
    kernel = lives_of(world, random.Random(3), ["plant/#"])
    traffic = Traffic("site")
    for number in range(40):
        traffic.publish(kernel, NOW + 4 + number / 2, "plant/t", b"%d" % number, qos=2)
    kernel.run(NOW + 10)
    document = canonical(regrown(world, world.overlay, ((2, 1),), kernel.now))
    for name in ("site", "r2a"):
        kernel.call(name, lambda node, now: node.offered(document, now))  # type: ignore[attr-defined]
    kernel.run(NOW + 10.3)
    kernel.kill()
    kernel.run(NOW + 30)
    assert len(kernel.nodes["r2a"].overlay.trees.open) == 1  # type: ignore[attr-defined]
    kernel.revive()
    kernel.run(NOW + 90)
    check_safety(traffic.published, kernel.committed)
    check_liveness(traffic.published, kernel.committed)
    assert len(kernel.nodes["control"].overlay.trees.open) == 1  # type: ignore[attr-defined]


@pytest.mark.attack(94)
@pytest.mark.parametrize(
    ("told", "comes_back"),
    in_turn(["site", "r1a", "control"], ["is there", "knows the new ones", "knows the old ones"]),
)
@pytest.mark.parametrize("mode", [Mode.COPIES, *slow([Mode.PLAIN])], ids=lambda mode: mode.name.lower())
def test_new_tokens_neither_lose_nor_repeat_anything(mode: Mode, told: str, comes_back: str):
    """Twice in a row, whoever hears of it first, the subscriber's process there or killed meanwhile: one stream."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#", mode, tokens=True)])
    kernel = lives_of(world, random.Random(f"{told}{comes_back}"), ["plant/#"])
    traffic = Traffic("site")
    for number in range(120):
        topic = "plant/kept" if number % 20 == 7 else "plant/t"
        traffic.publish(kernel, NOW + 4 + number / 0.625, topic, b"%d" % number, qos=2, retain=topic == "plant/kept")
    kernel.run(NOW + 10)
    for generation in (1, 2):
        knew = world.overlay, world.secrets
        document = canonical(world.renew_tokens("plant/#", generation))
        if comes_back != "is there":
            kernel.kill()
        first = "site" if comes_back != "is there" and told == "control" else told
        kernel.call(first, lambda node, now, document=document: node.offered(document, now))  # type: ignore[attr-defined,misc]
        kernel.run(kernel.now + 45)  # longer than replicas can answer who asks
        if comes_back != "is there":
            knows = world.overlay, world.secrets
            world.overlay, world.secrets = knew if comes_back == "knows the old ones" else knows
            kernel.revive()
            world.overlay, world.secrets = knows
        kernel.run(kernel.now + 40)
        document = canonical(world.retire())
        kernel.call(told, lambda node, now, document=document: node.offered(document, now))  # type: ignore[attr-defined,misc]
        kernel.run(kernel.now + 3)
    kernel.run(NOW + 260)
    check_safety(traffic.published, kernel.committed)
    check_liveness(traffic.published, kernel.committed)
    assert not kernel.replayed
    check_blame(kernel.trace.named_members(), ())
    assert not [d.sequence for d in kernel.committed if d.late]
    assert "holes" not in kernel.trace.figures
