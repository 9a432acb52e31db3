"""What a gateway keeps for replicas that lack pieces: for a while, within bounds, and what they get of it."""

from __future__ import annotations

import pytest

from bridge.contract import Count, Publication, Received, Send, Wire
from bridge.document import Scope, ScopeSecret
from bridge.publisher import residents as repairing
from bridge.publisher.entry import Entry
from bridge.publisher.residents import REPAIR_S, TOGETHER_S, Repairable, check_ours
from bridge.wire import PullRequest
from bridge.wire.pieces import PROPERTY_PART
from bridge.wire.pulling import ANSWERS_MAX
from keys.envelope import MessageHeader, Mode, content_digest
from keys.errors import NotAuthorised

NOW = 1000.0
PIECES = (b"one", b"two", b"six")
SECRET = ScopeSecret(Scope("plant/#"), "plant/#")


def entry(sequence: int, mode: Mode = Mode.BLOCKS, pieces: tuple[bytes, ...] = PIECES) -> Entry:
    header = MessageHeader(
        publisher=b"p" * 16, key_id=b"k" * 16, sequence=sequence, previous=0, time_ms=5, deadline_ms=0, qos=1,
        retain=False, tombstone=False, mode=mode, digests=tuple(map(content_digest, pieces)),
    )  # fmt: skip
    wire = Wire("plant/t", b"")
    return Entry(sequence, Publication("plant/t", b""), SECRET, 0, NOW, wire, header, "plant/t", pieces=pieces)


def request(sequence: int, *parts: int, time_ms: int = 5) -> PullRequest:
    return PullRequest(b"p" * 16, sequence, time_ms, parts)


def asked(kept: Repairable, what: PullRequest, of: Entry | None, peer: str = "r1a") -> list[object]:
    return list(kept.answer_request(Received(peer, Wire("", b"")), what, of, NOW))


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
def test_what_every_replica_has_whole_need_not_be_kept(mode: Mode) -> None:
    kept = Repairable()
    assert kept.keep_entry(entry(1, mode, (b"all",)), NOW) is None
    unsealed = entry(1)
    unsealed.header = None
    assert kept.keep_entry(unsealed, NOW) is None
    assert (len(kept), kept.next_deadline) == (0, None)


@pytest.mark.parametrize("mode", [Mode.ONE, Mode.BLOCKS])
def test_what_none_has_whole_is_kept_for_a_while(mode: Mode) -> None:
    kept = Repairable()
    assert kept.keep_entry(entry(1, mode), NOW) == []
    assert kept.keep_entry(entry(2, mode), NOW + 1) == []
    assert kept.keep_entry(entry(1, mode), NOW + 5) == [], "acknowledged twice, kept once"
    assert (len(kept), kept.next_deadline) == (2, NOW + REPAIR_S + TOGETHER_S)
    assert kept.due_entries(NOW + REPAIR_S - 0.1) == []
    assert kept.due_entries(NOW + REPAIR_S) == [1]
    kept.forget_entry(1)
    assert (len(kept), kept.next_deadline) == (1, NOW + 1 + REPAIR_S + TOGETHER_S)
    kept.forget_entry(1)
    assert kept.due_entries(NOW + 1 + REPAIR_S) == [2]


def test_more_than_its_bytes_lets_the_oldest_go_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "REPAIR_BYTES_MAX", 20)
    kept = Repairable()
    assert kept.keep_entry(entry(1), NOW) == []
    assert kept.keep_entry(entry(2), NOW) == []
    assert kept.keep_entry(entry(3), NOW) == [1]
    for sequence in (1, 99):
        kept.forget_entry(sequence)
    assert kept.keep_entry(entry(4, pieces=(bytes(20),) * 2), NOW) == [2, 3, 4], "it does not fit alone"
    for sequence in (2, 3, 4):
        kept.forget_entry(sequence)
    assert kept.keep_entry(entry(5, pieces=(bytes(10), bytes(10))), NOW) == [], "what went is counted no more"


def test_who_asks_gets_the_pieces_that_it_lacks_and_never_more_than_suffice() -> None:
    kept, one = Repairable(), entry(1)
    send, count = asked(kept, request(1, 1), one)
    assert isinstance(send, Send)
    assert (send.peer, send.wire.payload, dict(send.wire.properties)[PROPERTY_PART]) == ("r1a", b"two", "1")
    assert count == Count("pulls_answered")
    for what in (request(1), request(1, 0, 1, 2)):
        send = asked(Repairable(), what, one)[0]
        assert isinstance(send, Send)
        assert send.wire.payload == b"onetwo"


def test_a_request_for_an_earlier_sealing_of_more_pieces_gets_what_suffices_now() -> None:
    send = asked(Repairable(), request(1, 1, 3, time_ms=4), entry(1))[0]
    assert isinstance(send, Send)
    assert send.wire.payload == b"onetwo"
    assert asked(Repairable(), request(1, 1, 3), entry(1)) == [Count("pulls_refused")]


def test_one_piece_goes_to_one_replica_a_few_times() -> None:
    kept, one = Repairable(), entry(1)
    answers = [asked(kept, request(1, 0), one) for _ in range(ANSWERS_MAX + 1)]
    assert [len(answer) for answer in answers] == [2] * ANSWERS_MAX + [1]
    assert answers[-1] == [Count("pulls_refused")]
    assert len(asked(kept, request(1, 0), one, "r1b")) == 2


def test_what_is_not_sealed_or_not_there_is_answered_with_nothing() -> None:
    unsealed = entry(1)
    unsealed.wire = None
    assert asked(Repairable(), request(1), None) == asked(Repairable(), request(1), unsealed) == []


def test_a_gateway_answers_for_its_own_only() -> None:
    check_ours(True)
    with pytest.raises(NotAuthorised):
        check_ours(False)
