"""keys.epochs: keys of scopes and epochs are independent of each other."""

import pytest

from keys.epochs import scope_key, token_key
from keys.errors import OurFault

ROOT = bytes(range(32))


def test_keys_differ_by_root_scope_epoch_and_purpose() -> None:
    keys = [
        scope_key(ROOT, "a/#", 0),
        scope_key(ROOT, "a/#", 1),
        scope_key(ROOT, "b/#", 0),
        scope_key(bytes(32), "a/#", 0),
        token_key(ROOT),
        token_key(ROOT, 1),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert scope_key(ROOT, "a/#", 0) == keys[0]


def test_no_two_pairs_of_scope_and_epoch_read_alike() -> None:
    """The end of a scope's name cannot pass as an epoch."""
    assert scope_key(ROOT, "a\0\0\0\1", 0) != scope_key(ROOT, "a", 1 << 24)
    assert scope_key(ROOT, "a\0", 1) != scope_key(ROOT, "a", 1)


def test_roots_and_epochs_that_cannot_be_are_our_fault() -> None:
    for root, epoch in ((b"short", 0), (ROOT, -1), (ROOT, 1 << 32)):
        with pytest.raises(OurFault):
            scope_key(root, "a/#", epoch)
    with pytest.raises(OurFault):
        token_key(ROOT, -1)
