"""What an epoch key makes of a secret: what another library's HKDF says, and nothing shared between purposes."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keys.derivation import Derivation
from keys.errors import OurFault
from keys.keyheader import NO_KCV


@settings(max_examples=60)
@given(st.binary(max_size=200), st.none() | st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_another_library_derives_the_same(secret: bytes, scope_key: bytes | None, binding: bytes) -> None:
    assume(scope_key != bytes(32))
    prk = HKDF.extract(SHA256(), scope_key or bytes(32), secret)
    wanted = [HKDFExpand(SHA256(), 32, info + binding).derive(prk) for info in (b"veilmq/1 enc", b"veilmq/1 commit")]
    derivation = Derivation(scope_key)
    assert list(derivation.derive(secret, binding)) == wanted
    assert list(derivation.derive(secret, binding)) == wanted, "a derivation keeps nothing of what it derived"
    kcv = bytes(16) if scope_key is None else HKDFExpand(SHA256(), 16, b"veilmq/1 kcv").derive(scope_key)
    assert derivation.check_value == kcv


@pytest.mark.parametrize("scope_key", [b"", bytes(32), b"k" * 31, b"k" * 33, b"k" * 65])
def test_what_is_no_epoch_key_derives_nothing(scope_key: bytes) -> None:
    with pytest.raises(OurFault):
        Derivation(scope_key)


def test_everything_that_goes_in_changes_what_comes_out() -> None:
    secret, scope_key, binding = b"s" * 32, b"k" * 32, b"b" * 32
    made = [
        Derivation(scope_key).derive(secret, binding),
        Derivation(b"K" * 32).derive(secret, binding),
        Derivation(None).derive(secret, binding),
        Derivation(scope_key).derive(b"S" * 32, binding),
        Derivation(scope_key).derive(secret, b"B" * 32),
    ]
    outputs = [one for pair in made for one in pair]
    assert len(set(outputs)) == len(outputs) == 10, "no key is a commitment, which everybody reads"


def test_the_check_value_says_which_epoch_key_and_of_shares_alone_nothing() -> None:
    assert Derivation(None).check_value == NO_KCV
    assert len({Derivation(bytes([n]) * 32).check_value for n in range(1, 9)} | {NO_KCV}) == 9
