"""Keys that came before their views: kept as they came, once, and a publisher pushes out its own."""

from __future__ import annotations

import pytest

from spark_ingest.receiving import early_keys
from spark_ingest.receiving.early_keys import Ahead, Piece


def piece(number: int, replica: str = "r1", shares: str | None = None) -> Piece:
    return Piece(replica, f"key {number}", shares)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_keys, "AHEAD_MAX", 6)
    monkeypatch.setattr(early_keys, "AHEAD_PER_PUBLISHER_MAX", 3)


def test_pieces_are_taken_in_their_order_and_then_are_gone() -> None:
    ahead = Ahead()
    for number in (2, 1, 3, 1, 2):
        ahead.keep(b"p", piece(number))
    assert len(ahead) == 3
    assert ahead.take() == [piece(2), piece(1), piece(3)]
    assert (len(ahead), ahead.take()) == (0, [])
    for number in range(3):
        ahead.keep(b"p", piece(number))
    assert len(ahead) == 3, "nothing of before counts"


def test_the_same_key_of_another_replica_or_with_other_shares_is_another_piece() -> None:
    ahead = Ahead()
    ahead.keep(b"p", piece(1))
    ahead.keep(b"p", piece(1, "r2"))
    ahead.keep(b"p", piece(1, shares="shares"))
    assert len(ahead) == 3


def test_a_publisher_that_names_views_that_never_come_pushes_out_its_own() -> None:
    ahead = Ahead()
    ahead.keep(b"good", piece(0))
    for number in range(1, 50):
        ahead.keep(b"bad", piece(number))
    assert ahead.take() == [piece(0), piece(47), piece(48), piece(49)]


def test_over_all_publishers_the_oldest_goes() -> None:
    ahead = Ahead()
    for number in range(8):
        ahead.keep(bytes([number]), piece(number))
    assert ahead.take() == [piece(number) for number in range(2, 8)]
