"""Which worker gets which piece, and when its replica is owed the PUBACK."""

from __future__ import annotations

import pytest

from bridge.document import batch_topic
from bridge.wire import KEYS_TOPIC
from gateway.overlay import Properties, Publish
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES
from spark_ingest.receiving import dealing
from spark_ingest.receiving.dealing import Dealer, Dealt
from tests.spark_ingest.region import Overlay, Publisher

WORKERS = 3
BLOCK = 4_096


def publish(topic: str, *user: tuple[str, str], payload: bytes = b"x") -> Publish:
    return Publish(topic, payload, 1, properties=Properties(user=(*user,)))


def sealed(count: int) -> list[Publish]:
    """Of one publisher, in blocks of numbers that go to several workers."""
    publisher = Publisher(Overlay())
    made = [publisher.seal("plant/a", sequence=BLOCK * number) for number in range(1, count + 1)]
    return [publish(each.topic, *each.piece(1, with_key=False).properties, payload=each.content) for each in made]


def dealer() -> Dealer:
    made = Dealer(WORKERS)
    for worker in range(WORKERS):
        assert made.begun(worker, 1) == []
    return made


def contents(dealt: list[tuple[int, Dealt]]) -> dict[int, list[bytes]]:
    return {worker: [payload for _, _, payload, _ in told.pieces] for worker, told in dealt}


def test_pieces_of_a_publication_meet_whoever_brings_them_and_all_workers_have_some() -> None:
    made, pieces = dealer(), sealed(30)
    first = contents(made.deal("r1", pieces, "r1"))
    assert sorted(each for found in first.values() for each in found) == sorted(each.payload for each in pieces)
    assert len(first) == WORKERS
    assert contents(made.deal("r2", pieces, "r2")) == first
    assert contents(dealer().deal("r1", pieces, "r1")) == first, "in another process too"


def test_what_a_publisher_sends_is_dealt_by_its_number() -> None:
    overlay = Overlay()
    publishers = [Publisher(overlay, f"gw{number}") for number in range(4)]
    topic, made, owners = batch_topic(1), dealer(), set()
    for started, publisher in enumerate(publishers):
        blocks = []
        for sequence in (1, 4_095, 4_096, 8_191):
            piece = publisher.seal("plant/a", sequence=sequence + started * 8_192).piece(1)
            told = dict(piece.properties)[PROPERTY_HEADER]
            ((owner, _),) = made.deal("r1", [publish(topic, (PROPERTY_HEADER, told))], None)
            blocks.append(owner)
        assert blocks[0] == blocks[1]
        assert blocks[2] == blocks[3]
        owners |= set(blocks)
    assert len(owners) > 1
    for junk in ("not base64!", "AAAA", ""):
        ((owner, _),) = made.deal("r1", [publish(topic, (PROPERTY_HEADER, junk))], None)
        assert owner == 0, "somebody has to refuse it"


def test_a_key_goes_to_everybody_and_its_piece_waits_for_all() -> None:
    made = dealer()
    key = ((PROPERTY_KEY, "K"), (PROPERTY_SHARES, "S"))
    rode = publish("plant/a", (PROPERTY_HEADER, "AAAA"), *key)
    dealt = made.deal("r1", [rode], "r1")
    assert len(dealt) == WORKERS
    whole = [told.pieces[0] for _, told in dealt if told.pieces[0][1] == "plant/a"]
    alone = [told.pieces[0] for _, told in dealt if told.pieces[0][1] == KEYS_TOPIC]
    assert [piece[2:] for piece in whole] == [(b"x", rode.properties.user)]
    assert [piece[2:] for piece in alone] == [(b"", key)] * (WORKERS - 1)
    ticket = whole[0][0]
    assert made.take_done(0, [ticket]) == []
    assert made.take_done(0, [ticket]) == [], "said twice"
    assert made.take_done(2, [ticket]) == []
    assert made.take_done(1, [ticket, 99]) == [("r1", rode)]
    stands_alone = publish(KEYS_TOPIC, *key, payload=b"")
    assert {told.pieces[0][1:] for _, told in made.deal("r1", [stands_alone], "r1")} == {(KEYS_TOPIC, b"", key)}


def test_what_a_worker_has_not_answered_for_comes_again_with_its_next_session() -> None:
    made = dealer()
    pieces = sealed(30)
    mine = dict(made.deal("r1", pieces[:20], "r1"))[1]
    made.take_done(1, [ticket for ticket, *_ in mine.pieces[:2]])
    made.note_worker_end(1)
    assert 1 not in dict(made.deal("r2", pieces, "r2")), "nobody there"
    again = made.begun(1, 2)
    assert [(told.session, told.replica) for told in again] == [(2, "r1"), (2, "r2")]
    assert again[0].pieces == mine.pieces[2:]
    assert made.begun(1, 3)[0].pieces == again[0].pieces
    answered = made.take_done(1, [ticket for told in again for ticket, *_ in told.pieces])
    assert [sender for sender, _ in answered] == ["r1"] * len(again[0].pieces) + ["r2"] * len(again[1].pieces)
    assert made.begun(1, 4) == []


def test_what_one_worker_owes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "PENDING_MAX", 3)
    made = dealer()
    for _ in range(5):
        made.deal("r1", [publish("plant/a", (PROPERTY_HEADER, "AAAA"))], "r1")
    assert made.overflowed == 2
