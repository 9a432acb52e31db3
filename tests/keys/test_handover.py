"""keys.handover: what the owner seals for one member reaches that member of that overlay only."""

from __future__ import annotations

import pytest

from keys.epochs import KeyName
from keys.errors import BadContent, BadFrame, OurFault
from keys.handover import KEYS_MAX, SCOPES_MAX, ScopeGrant, open_grants, seal_grants
from keys.identity import Identity
from keys.sealedbox import seal_box
from tests.keys.helpers import PUBLISHER, STRANGER, bit_flips, stream

KEYS = ((KeyName("wire/#", 0, 1), b"k" * 32), (KeyName("wire/#", 0, 2), b"l" * 32))
GRANTS = [ScopeGrant("wire/#", "clear/#", b"t" * 32, KEYS), ScopeGrant("open/#", "open/#")]


def sealed(grants: list[ScopeGrant] = GRANTS, member: str = "gateway-1", to: Identity = PUBLISHER) -> bytes:
    return seal_grants("overlay", member, to.agreement_bytes, grants, stream("box")(32))


def framed(plaintext: bytes) -> bytes:
    """A box that the owner's own hand made, around something else."""
    info = b"veilmq/1 handover" + b"\0\7overlay" + b"\0\x09gateway-1"
    return seal_box(PUBLISHER.agreement_bytes, plaintext, info, stream("framed")(32))


def test_what_the_owner_seals_its_member_opens() -> None:
    assert open_grants("overlay", "gateway-1", PUBLISHER, sealed()) == GRANTS
    assert open_grants("overlay", "gateway-1", PUBLISHER, sealed([])) == []
    assert open_grants("overlay", "gateway-1", PUBLISHER, b"") == []


def test_a_box_of_another_member_overlay_or_key_does_not_open() -> None:
    for overlay, member, identity in (
        ("overlay", "gateway-2", PUBLISHER),
        ("overlay-2", "gateway-1", PUBLISHER),
        ("overlaygateway", "-1", PUBLISHER),
        ("overlay", "gateway-1", STRANGER),
    ):
        with pytest.raises(BadContent):
            open_grants(overlay, member, identity, sealed())


def test_an_altered_box_does_not_open() -> None:
    for changed in bit_flips(sealed())[::7]:
        with pytest.raises(BadContent):
            open_grants("overlay", "gateway-1", PUBLISHER, changed)


def test_the_frame_inside_is_strict() -> None:
    good = b"\1\x0c\0" + b"\0\1" + b"\0\1w" + b"\0\1c" + b"\0\0" + b"\0\1" + bytes(6) + b"k" * 32
    (grant,) = open_grants("overlay", "gateway-1", PUBLISHER, framed(good))
    assert grant == ScopeGrant("w", "c", None, ((KeyName("w", 0, 0), b"k" * 32),))
    for plaintext in [*(good[:size] for size in range(len(good))), good + b"\0", b"\1\x0b" + good[2:]]:
        with pytest.raises(BadFrame):
            open_grants("overlay", "gateway-1", PUBLISHER, framed(plaintext))


def test_sizes_are_bounded_on_both_sides() -> None:
    many_keys = tuple((KeyName("w", 0, bump), b"k" * 32) for bump in range(KEYS_MAX + 1))
    for grants in ([GRANTS[1]] * (SCOPES_MAX + 1), [ScopeGrant("w", "c", None, many_keys)]):
        with pytest.raises(OurFault):
            sealed(grants)
    for plaintext in (
        b"\1\x0c\0" + (SCOPES_MAX + 1).to_bytes(2),
        b"\1\x0c\0\0\1" + b"\0\1w\0\1c" + b"\0\0" + (KEYS_MAX + 1).to_bytes(2),
        b"\1\x0c\0\0\1" + b"\0\1w\0\1c" + b"\0\x10" + bytes(16) + b"\0\0",
    ):
        with pytest.raises(BadFrame, match="of"):
            open_grants("overlay", "gateway-1", PUBLISHER, framed(plaintext))


def test_no_key_shows() -> None:
    assert "kkk" not in repr(GRANTS)
    assert "ttt" not in repr(GRANTS)


def test_the_most_scopes_and_the_most_keys_pass() -> None:
    most_keys = tuple((KeyName("w", 0, bump), b"k" * 32) for bump in range(KEYS_MAX))
    for grants in ([GRANTS[1]] * SCOPES_MAX, [ScopeGrant("w", "c", None, most_keys)]):
        assert open_grants("overlay", "gateway-1", PUBLISHER, sealed(grants)) == grants
