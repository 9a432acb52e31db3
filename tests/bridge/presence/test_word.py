"""The frame of a word of presence: what it carries, and frames that no honest replica sends."""

from __future__ import annotations

import pytest

from bridge.contract import Blame, Received, Wire
from bridge.presence import PRESENCE_TOPIC, PresenceWord
from bridge.presence.word import LINKED_MAX
from keys.errors import BadSignature, NotAuthorised
from tests.bridge.helpers import NOW, replica
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

world = fresh(row_of_regions, 2, {"g1": 1})


def test_a_word_is_the_frame_of_the_protocol_and_comes_back(world: World) -> None:
    word = PresenceWord("r1a", 1, 180_000_000, ("r2a", "r2b")).signed(world.identities["r1a"])
    assert word.signed_bytes() == bytes.fromhex(
        "012a00 0003 723161 00000001 000000000aba9500 0002 0003 723261 0003 723262"
    )
    assert PresenceWord.decode(word.encode()) == word
    word.check_author(world.overlay)


def test_only_its_replica_in_its_region_signs_a_word(world: World) -> None:
    for word, error in (
        (PresenceWord("r1a", 1, 1).signed(world.identities["r1b"]), BadSignature),
        (PresenceWord("r1a", 2, 1).signed(world.identities["r1a"]), NotAuthorised),
        (PresenceWord("g1", 1, 1).signed(world.identities["g1"]), NotAuthorised),
        (PresenceWord("nobody", 1, 1).signed(world.identities["r1a"]), NotAuthorised),
    ):
        with pytest.raises(error):
            word.check_author(world.overlay)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"nonsense",
        PresenceWord("r1a", 1, 1, ("b", "a"), bytes(64)).encode(),
        PresenceWord("r1a", 1, 1, ("a", "a"), bytes(64)).encode(),
        PresenceWord("r1a", 1, 1, tuple(f"{n:04}" for n in range(LINKED_MAX + 1)), bytes(64)).encode(),
        PresenceWord("r1a", 1, 1, (), bytes(65)).encode(),
    ],
)
def test_frames_that_no_honest_replica_sends_make_the_sender_suspected(world: World, frame: bytes) -> None:
    effects = replica(world, "r2a").handle(Received("r1a", Wire(PRESENCE_TOPIC, frame)), NOW)
    assert any(isinstance(effect, Blame) and not effect.named for effect in effects)
