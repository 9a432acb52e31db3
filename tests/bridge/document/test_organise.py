"""What the owner says of measuring: read back as it was written, and refused out of range."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.organise import Organising
from bridge.document.policy import Policy
from keys.errors import BadFrame
from keys.frames import Reader
from keys.identity import Identity
from tests.sim.world import make_world

SAID = Organising(((1, 2), (2, 9)), 30, 3, 25, 1200)


def test_it_reads_back_alone_and_in_the_policy() -> None:
    frame = Reader(SAID.encode())
    assert Organising.read(frame) == SAID
    frame.end()
    policy = replace(make_world({1: 3}, [], {"g": 1}).overlay.policy, organising=SAID).signed(
        Identity.generate(bytes(32))
    )
    assert Policy.decode(policy.body(), policy.signature) == policy
    assert policy.body()[2] & 0x02, "who does not know it must not go on without it"


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SAID, interval_s=0),
        replace(SAID, interval_s=3601),
        replace(SAID, hops=0),
        replace(SAID, hops=17),
        replace(SAID, min_gain_percent=100),
        replace(SAID, dwell_s=30 * 86_400 + 1),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: Organising) -> None:
    with pytest.raises(BadFrame):
        Organising.read(Reader(wrong.encode()))


def test_gain_and_strange_links() -> None:
    assert SAID.min_gain == 0.25
    assert SAID.strange({1, 2, 9}) == ""
    assert SAID.strange({1, 2}) == "2-9"
    assert Organising(((4, 4),)).strange({4}) == "4-4"
