"""Eras: liars neither make one up nor move one beyond what honest replicas saw; the owner signs each."""

from __future__ import annotations

import json
import zlib

import pytest

from bridge.document import OverlayError
from bridge.reader.replay import agreed_eras, following, loaded, of_span
from tests.sim.world import NOW, make_world

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


def test_an_era_counts_that_enough_replicas_name_at_a_time_between_theirs() -> None:
    honest = {"r1": [(10, A), (50, B)], "r2": [(12, A), (52, B)]}
    for lie in ([], [(1, C)], [(0, A), (0, B)], [(99, A), (99, B)], [(50, A), (10, B)]):
        found = {digest: at for at, digest in agreed_eras({**honest, "liar": sorted(lie)}, 1)}
        assert found.keys() == {A, B}
        assert 10 <= found[A] <= 12
        assert 50 <= found[B] <= 52


def test_an_era_that_one_replica_alone_names_does_not_count() -> None:
    assert agreed_eras({"r1": [(1, A)], "r2": [], "r3": [(5, B)]}, 1) == []


def test_the_span_begins_with_the_era_that_lasts_then() -> None:
    eras = [(10, A), (20, B), (30, C)]
    assert of_span(eras, 25, 100) == [(20, B), (30, C)]
    assert of_span(eras, 5, 15) == [(10, A)]
    assert of_span(eras, 30, 100) == [(30, C)]


def packed(document: object) -> bytes:
    return zlib.compress(json.dumps(document).encode())


def test_a_document_is_believed_if_the_owner_signed_it() -> None:
    world, other = make_world({1: 3}, [], {"desk": 1}), make_world({1: 3}, [], {"desk": 1}, seed=2)
    document, now_ms = world.overlay.to_document(), int(NOW * 1000)
    era = loaded(packed(document), world.overlay.owner, now_ms)
    assert era.policy == world.overlay.policy
    with pytest.raises(OverlayError):
        loaded(packed(document), other.overlay.owner, now_ms)
    newer = following(era, world.revoked("desk", 0), NOW)
    assert newer.policy.version == 2


@pytest.mark.parametrize("data", [b"", b"garbage", packed([]), packed("text"), zlib.compress(b"[" * (1 << 20))])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(OverlayError):
        loaded(data, bytes(32), 0)


@pytest.mark.long
def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(OverlayError, match="too large"):
        loaded(zlib.compress(bytes(64 << 20)), bytes(32), 0)
