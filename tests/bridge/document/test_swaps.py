"""Frames of swaps: read back as they were written, and refused where a byte is wrong."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bridge.document.arrangement import Arrangement
from bridge.document.organise import Organising
from bridge.document.swaps import ENDORSEMENTS_MOST, NEWS_SWAPS_MOST, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.trees import STEPS_MOST, TreeChange
from keys.errors import BadFrame, BadSignature
from keys.frames import Reader
from keys.identity import Certificate, Identity, Role
from tests.sim.organised_world import BOSS, endorsements, organised, swap_on
from tests.sim.world import NOW

WORLD = organised()
SWAP = swap_on(WORLD.overlay, WORLD, (1, 4), (2, 3))
AGREED = endorsements(WORLD, SWAP, "r1a", "r2b")


def test_frames_read_back() -> None:
    assert SignedSwap.decode(SWAP.encode()) == SWAP
    assert SwapEndorsement.decode(AGREED[0].encode()) == AGREED[0]
    news = SwapNews((SWAP,), AGREED)
    assert SwapNews.decode(news.encode()) == news
    assert SwapNews.decode(SwapNews().encode()) == SwapNews()
    assert news
    assert not SwapNews()
    SWAP.verify(WORLD.overlay.owner)
    assert AGREED[0].is_of(WORLD.overlay.members["r1a"].certificates)
    assert not AGREED[0].is_of(WORLD.overlay.members["r2b"].certificates)


def test_a_frame_with_a_byte_more_or_less_or_of_another_kind_is_refused() -> None:
    for frame, read in (
        (SWAP.encode(), SignedSwap.decode),
        (AGREED[0].encode(), SwapEndorsement.decode),
        (SwapNews((SWAP,), AGREED).encode(), SwapNews.decode),
    ):
        for wrong in (frame[:-1], frame + b"\0", b"\x01\x07" + frame[2:], b""):
            with pytest.raises(BadFrame):
                read(wrong)  # type: ignore[operator]


@pytest.mark.parametrize("steps", [0, 2, STEPS_MOST + 1])
def test_a_swap_that_follows_no_tree_is_refused(steps: int) -> None:
    with pytest.raises(BadFrame):
        SignedSwap.decode(replace(SWAP, steps=steps).encode())


def test_more_endorsements_than_there_may_be_are_refused_unread() -> None:
    head = SwapNews((SWAP,)).encode()[:-2]
    with pytest.raises(BadFrame, match=str(ENDORSEMENTS_MOST)):
        SwapNews.decode(head + (ENDORSEMENTS_MOST + 1).to_bytes(2))


def test_more_swaps_than_anybody_may_have_are_refused_unread() -> None:
    """Each costs two signatures, though who signed it organises nothing."""
    news = SwapNews((SWAP,) * NEWS_SWAPS_MOST)
    assert SwapNews.decode(news.encode()) == news
    with pytest.raises(BadFrame, match=str(NEWS_SWAPS_MOST)):
        SwapNews.decode(SwapNews((SWAP,) * (NEWS_SWAPS_MOST + 1)).encode())


@pytest.mark.parametrize("change", [{"number": 2, "steps": 2}, {"added": (1, 3)}, {"grace_s": 1}, {"since_ms": 5}])
def test_what_was_altered_is_not_what_was_signed(change: dict[str, object]) -> None:
    with pytest.raises(BadSignature):
        replace(SWAP, **change).verify(WORLD.overlay.owner)  # type: ignore[arg-type]


def test_who_carries_is_never_an_organiser_and_no_certificate_is_made_up() -> None:
    replica = swap_on(WORLD.overlay, WORLD, (1, 4), (2, 3), by="r1a")
    with pytest.raises(BadSignature, match="organises nothing"):
        replica.verify(WORLD.overlay.owner)
    mine = replace(SWAP.certificate, region=3)
    with pytest.raises(BadSignature):
        replace(SWAP, certificate=mine).signed(WORLD.identities[BOSS]).verify(WORLD.overlay.owner)


def test_a_tree_may_follow_one_of_some_numbers_before() -> None:
    change = TreeChange(7, int(NOW), 2, 60, ((1, 2),)).followed_by(((1, 3),), 9, 2, 5, 101)
    assert (change.number, change.steps) == (108, 101)
    assert TreeChange.read(Reader(change.encode())) == change
    with pytest.raises(BadFrame):
        TreeChange.read(Reader(replace(change, number=100).encode()))
    with pytest.raises(BadFrame):
        TreeChange.read(Reader(replace(change, number=300, steps=STEPS_MOST + 1).encode()))


# ------------------------------------------------------------------------------------------------- vectors


def current() -> dict[str, str]:
    """Frames from fixed seeds, as hex."""
    owner, boss, replica = (Identity.generate(bytes([n]) * 32) for n in (2, 5, 4))
    certificate = Certificate.issue(
        owner, name="organiser-1", role=Role.INGEST, public_key=boss.public_bytes,
        agreement_key=boss.agreement_bytes, domain="acme", region=1, not_after_ms=2_000_000_000_000,
    )  # fmt: skip
    first = Arrangement(((1, 2), (3, 2), (3, 4)), TreeChange(7, 1_700_000_000_000), None)
    former = first.digest("example")
    swap = SignedSwap(9, 2, former, 1_700_000_500_000, 60, (4, 1), (2, 3), certificate).signed(boss)
    agreed = SwapEndorsement.sign_swap(swap, "r1a", replica)
    organising = Organising(((4, 1),), organiser="organiser-1", grace_s=60)
    return {
        "former": former.hex(),
        "swap": swap.encode().hex(),
        "swap_digest": swap.digest.hex(),
        "swap_endorsement": agreed.encode().hex(),
        "swap_news": SwapNews((swap,), (agreed,)).encode().hex(),
        "organiser": organising.encode_organiser().hex(),
        "tree_change": first.swapped((4, 1), (2, 3), swap.since_ms, 60, 2).change.encode().hex(),
    }


def test_no_frame_has_changed_unnoticed() -> None:
    vectors = json.loads((Path(__file__).parents[2] / "vectors" / "swaps.json").read_text())
    assert vectors["provenance"]
    assert current() == {name: value for name, value in vectors.items() if name != "provenance"}


def test_offsets_are_those_of_the_protocol_page() -> None:
    """A swap taken apart by the offsets that docs/protocol.md §9.17 gives, and verified with nothing but Ed25519."""
    found = {name: bytes.fromhex(value) for name, value in current().items()}
    swap = found["swap"]
    body, signature = swap[:-64], swap[-64:]
    assert body[:3] == bytes((1, 39, 0))
    assert (int.from_bytes(body[3:7]), body[7], body[8:40]) == (9, 2, found["former"])
    assert (int.from_bytes(body[40:48]), int.from_bytes(body[48:52])) == (1_700_000_500_000, 60)
    assert [int.from_bytes(body[at : at + 4]) for at in (52, 56, 60, 64)] == [4, 1, 2, 3]
    certificate = Certificate.decode(body[70:])
    assert int.from_bytes(body[68:70]) == len(body) - 70
    public = Ed25519PublicKey.from_public_bytes(certificate.public_key)
    public.verify(signature, b"veilmq/1 swap\0" + body)
    edges = b"\0\3" + b"".join(n.to_bytes(4) for edge in ((1, 2), (2, 3), (3, 4)) for n in edge)
    digested = b"veilmq/1 tree\0" + b"\0\7example" + (7).to_bytes(4) + edges
    assert hashlib.sha256(digested).digest() == found["former"]
    assert hashlib.sha256(body).digest() == found["swap_digest"] == found["swap_endorsement"][3:35]


if __name__ == "__main__":
    print(json.dumps(current(), indent=1))
