"""Steps of the overlay's messages: a replica shows what it may know, names come from the signed header."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bridge.contract import Deliver, Numbered, Publication, Wire, packed
from gateway.base.followed import FollowedMessages, Following, Wish
from gateway.overlay.followed_wires import FollowedWires
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Mode, to_property
from keys.message import NO_KEY, MessageHeader
from keys.signedheader import sign_header
from tests.sim.world import make_world

WORLD = make_world({1: 3}, [], {"site": 1})


def made(name: str = "r1") -> tuple[FollowedWires, FollowedMessages, Following, Counter[str]]:
    followed = FollowedMessages(name, lambda is_on: None, lambda: 0.0)
    counts: Counter[str] = Counter()
    return FollowedWires(followed, lambda: WORLD.overlay, counts), followed, followed.begin_following(Wish()), counts


def steps(following: Following) -> list[dict[str, Any]]:
    found = []
    while (step := following.take_step()) is not None:
        shown = step.to_dict("r1")
        found.append({key: value for key, value in shown.items() if key not in ("time", "member")})
    return found


def wire(number: int, content: bytes = b"sealed") -> Wire:
    identity = WORLD.identities["site"]
    header = MessageHeader(identity.party_id, NO_KEY, number, 0, 1, 0, 1, False, False, Mode.PLAIN, (bytes(32),))
    signed = to_property(sign_header(identity, header, "veilmq/batch/1").encode())
    return Wire("veilmq/batch/1", content, properties=(
        (PROPERTY_HEADER, signed), (PROPERTY_KEY, "k"), (PROPERTY_SHARES, "s")))  # fmt: skip


def test_what_a_replica_shows_is_header_sizes_and_judgement() -> None:
    wires, _, following, counts = made()
    counts["other"] = 1

    def handle() -> None:
        counts["forwarded"] += 1
        wires.sent("g2", wire(7))

    wires.handled("site", wire(7), handle, lambda: "")
    header = {"message": "site/7", "bytes": 6, "carries": "key, shares"}
    assert steps(following) == [
        {"step": "came from member", "client": "site", "wire": "veilmq/batch/1", **header},
        {"step": "sent to member", "receiver": "g2", **header},
        {"step": "judged", "message": "site/7", "counted": "forwarded"},
    ]
    wires.handled("site", wire(8), lambda: None, lambda: "time")
    assert steps(following)[1] == {"step": "refused", "message": "site/8", "client": "site", "reason": "time"}


def test_wires_without_a_header_or_with_nonsense_are_handled_and_not_shown() -> None:
    wires, _, following, _ = made()
    done: list[int] = []
    for properties in ((), ((PROPERTY_HEADER, "!"),), ((PROPERTY_HEADER, "AAAA"),)):
        wires.handled("site", Wire("t", b"x", properties=properties), lambda: done.append(1), lambda: "")
    assert len(done) == 3
    assert steps(following) == []


def test_a_publication_its_number_and_the_batch_that_takes_it_along() -> None:
    wires, _, following, _ = made("site")
    one, two = Publication("plant/a", b"x", 1), Publication("plant/b", b"y", 0)
    wires.numbered(7, one, "pump")
    wires.gathered(7, packed("plant/#", [Numbered(7, one), Numbered(9, two)]))
    wires.taken("r1", 7)
    wires.taken("r1", -1)  # a statement, no message
    wires.not_taken("r2", 7, "size")
    assert steps(following) == [
        {"step": "numbered", "message": "site/7", "publisher": "pump", "topic": "plant/a", "stays": "to disk"},
        {"step": "on its way", "message": "site/7", "records": 2},
        {"step": "on its way", "message": "site/9", "batch": "site/7", "records": 2},
        {"step": "taken by member", "message": "site/7", "receiver": "r1"},
        {"step": "refused by member", "message": "site/7", "receiver": "r2", "reason": "size"},
    ]


def test_what_is_handed_out_has_the_name_of_the_message() -> None:
    wires, followed, following, _ = made("g2")
    effect = Deliver("site", 9, Publication("plant/a", b"secret", 1))
    wires.say_opened(effect, lambda: followed.say_step("sent", client="desk", topic="plant/a"))
    followed.say_step("later")
    found = steps(following)
    assert found == [
        {"step": "opened", "message": "site/9", "topic": "plant/a", "qos": 1, "bytes": 6},
        {"step": "sent", "message": "site/9", "client": "desk", "topic": "plant/a"},
        {"step": "later"},
    ]
    assert "secret" not in str(found)
