"""Publications of no live epoch: believed with enough replicas of ours, and no replica fills memory with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

import pytest

from keys.errors import NotAuthorised
from spark_ingest.receiving import vouching
from spark_ingest.receiving.directory import Directory
from spark_ingest.receiving.sealings import Form
from spark_ingest.receiving.vouching import Vouching


@dataclass
class Overlay:
    """Two replicas vouch; `hosted` brokers do not."""

    hosted: frozenset[str] = frozenset({"cloud"})

    def honest_among(self, replicas: Collection[str]) -> bool:
        return len(replicas) >= 2


class Sealing:
    vouchers: set[str] | None = None
    unvouched_at: str | None = None


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Vouching:
    monkeypatch.setattr(vouching, "UNVOUCHED_MAX", 3)
    return Vouching(cast(Directory, Overlay()))


def form() -> Any:
    return cast(Form, Sealing())


def begun(table: Vouching, replica: str = "r1") -> Any:
    made = form()
    table.begin(made, replica)
    table.brought(made, replica)
    return made


def test_one_replica_is_not_believed_however_often_it_says_it(table: Vouching) -> None:
    made = begun(table)
    for _ in range(3):
        table.brought(made, "r1")
    assert made.vouchers == {"r1"}
    table.brought(made, "r2")
    assert (made.vouchers, made.unvouched_at) == (None, None)


def test_a_hosted_broker_vouches_for_nothing(table: Vouching) -> None:
    made = begun(table, "cloud")
    table.brought(made, "cloud")
    assert made.vouchers == set()
    table.brought(made, "r1")
    assert made.vouchers == {"r1"}
    table.brought(made, "r2")
    assert made.vouchers is None


def test_a_replica_that_brings_what_nobody_else_brings_finds_no_room(table: Vouching) -> None:
    waiting = []
    for _ in range(3):
        table.check_room("bad")
        waiting.append(begun(table, "bad"))
    with pytest.raises(NotAuthorised, match="too much"):
        table.check_room("bad")
    table.check_room("good")
    table.brought(waiting[0], "good")
    table.check_room("bad")


def test_what_is_given_up_makes_room_once(table: Vouching) -> None:
    waiting = [begun(table) for _ in range(3)]
    for _ in range(3):
        table.release(waiting[0])
    begun(table)
    with pytest.raises(NotAuthorised):
        table.check_room("r1")


def test_what_needs_no_vouchers_is_left_alone(table: Vouching) -> None:
    made = form()
    table.brought(made, "r1")
    assert made.vouchers is None
