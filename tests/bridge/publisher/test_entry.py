"""An entry: who has enough of it, how old its sealing is, and what each replica gets of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.contract import Publication, Wire
from bridge.document import Scope, ScopeSecret
from bridge.document.region_view import RegionView
from bridge.publisher.entry import Entry, has_enough, sealed_ago_s
from keys.envelope import MessageHeader, Mode, content_digest
from tests.bridge.helpers import NOW

VIEW = RegionView(1, 1, "home", ("a", "b", "c"))
SECRET = ScopeSecret(Scope("plant/#", number=1), "plant/#")
BLOCKS = (b"first", b"other", b"third")


def entry(**fields: Any) -> Entry:
    made = Entry(7, Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000)), SECRET, 0, NOW, topic="v/1")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("acked", "expected"), [("", False), ("a", False), ("ab", True), ("abc", True), ("axyz", False), ("abx", True)]
)
def test_enough_are_n_minus_f_replicas_of_the_view(acked: str, expected: bool) -> None:
    """Acknowledgements of replicas that the view does not list count for nothing."""
    assert has_enough(entry(acked=set(acked)), VIEW) is expected


def test_a_sealing_is_no_younger_for_a_clock_that_was_set_back() -> None:
    sealed = entry(sealed_ms=int(NOW * 1000))
    assert sealed_ago_s(sealed, NOW + 5) == sealed_ago_s(sealed, NOW - 5) == 5


def test_each_replica_gets_its_own_block_and_of_copies_the_whole() -> None:
    digests = tuple(map(content_digest, BLOCKS))
    header = MessageHeader(bytes(16), b"k" * 16, 7, 0, 0, 0, 1, False, False, Mode.BLOCKS, digests)
    cut = entry(header=header, pieces=BLOCKS, wire=Wire("v/1", b""))
    assert [cut.wire_for(peer, VIEW).payload for peer in "abc"] == list(BLOCKS)
    whole = entry(header=replace(header, mode=Mode.COPIES, digests=digests[:1]), wire=Wire("v/1", b"all"))
    assert {whole.wire_for(peer, VIEW).payload for peer in "abc"} == {b"all"}
