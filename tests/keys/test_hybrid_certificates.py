"""keys.identity: certificates with a hybrid key for boxes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keys.errors import BadFrame, OurFault
from keys.identity import FLAG_HYBRID, Certificate, Identity, Role
from tests.keys.helpers import assert_strict, stream

OWNER, HOLDER = Identity.generate(stream("owner")(32)), Identity.generate(stream("holder")(32))
SAFE = Certificate.issue(
    OWNER, name="site", role=Role.GATEWAY, public_key=HOLDER.public_bytes, agreement_key=HOLDER.hybrid_bytes,
    domain="acme", region=1, not_after_ms=2_000_000_000_000,
)  # fmt: skip


def test_the_frame_has_a_flag_and_the_long_key() -> None:
    frame = SAFE.encode()
    assert frame[2] == FLAG_HYBRID
    assert HOLDER.hybrid_bytes in frame
    assert SAFE.is_hybrid
    SAFE.verify(OWNER.public_bytes, 0)


def test_the_frame_is_strict() -> None:
    assert_strict(Certificate.decode, Certificate.encode, SAFE.encode())


def test_without_the_flag_the_long_key_is_not_read_as_another() -> None:
    frame = bytearray(SAFE.encode())
    frame[2] = 0
    with pytest.raises(BadFrame):
        Certificate.decode(bytes(frame))


def test_a_key_that_is_none_is_refused() -> None:
    wrong = b"\xff" * 3 + HOLDER.hybrid_bytes[3:]
    with pytest.raises(OurFault, match="ML-KEM-768"):
        replace(SAFE, agreement_key=wrong).signed_bytes()
    with pytest.raises(BadFrame, match="ML-KEM-768"):
        Certificate.decode(SAFE.encode().replace(HOLDER.hybrid_bytes, wrong))
