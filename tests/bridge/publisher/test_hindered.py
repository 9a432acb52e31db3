"""Entries that cannot be sealed now, and those that are given up."""

from __future__ import annotations

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import Count, Publication
from bridge.publisher.entry import Entry, Standing
from bridge.publisher.pacing import Hindered
from bridge.publisher.residents import Residents
from tests.bridge.helpers import NOW
from tests.sim.world import make_world


class Says:
    """Instead of a sealer: why entries wait, by number."""

    def __init__(self, **why: str) -> None:
        self.why = why

    def hindrance(self, entry: Entry, now: float) -> str | None:
        return self.why.get(f"n{entry.sequence}")


def entries(*numbers: int) -> dict[int, Entry]:
    secret = make_world({1: 3}, [], {"site": 1}).secrets[0]
    of = [Numbered(at, Publication("plant/t", b"x", 1)) for at in range(2)]
    return {n: Entry(n, packed("plant/#", of), secret, 0, NOW) for n in numbers}


def test_what_can_be_sealed_is_held_up_by_nothing_and_what_waits_is_counted_once() -> None:
    held = entries(1, 2, 3)
    residents = Residents()
    for entry in held.values():
        residents.add_entry(entry)
    waiting = Hindered(held, residents, 100.0)
    says = Says(n1="not_authorised", n2="key_waits")
    ready, counts = waiting.set_aside([1, 2, 3], says, NOW)  # type: ignore[arg-type]
    assert (ready, counts) == ([3], [Count("not_authorised", 2), Count("key_waits", 2)])
    assert waiting.set_aside([1, 2], says, NOW) == ([], [])  # type: ignore[arg-type]
    assert (list(waiting), held[1].standing, waiting.give_up_at) == ([1, 2], Standing.WAITING, NOW + 100)


def test_only_what_waits_for_a_right_is_given_up_and_counted_by_publications() -> None:
    held = entries(1, 2)
    residents = Residents()
    for entry in held.values():
        residents.add_entry(entry)
    waiting = Hindered(held, residents, 100.0)
    waiting.set_aside([1, 2], Says(n1="not_authorised", n2="key_waits"), NOW)  # type: ignore[arg-type]
    assert waiting.given_up(NOW + 99) == ([], [])
    assert waiting.given_up(NOW + 100) == ([1], [Count("not_authorised_dropped", 2)])
    del held[1]
    assert waiting.give_up_at == float("inf")
    assert list(waiting) == [2]


def test_who_waits_for_another_reason_is_counted_again_and_an_earlier_end_counts() -> None:
    held = entries(1, 2)
    held[2].born = NOW - 40
    residents = Residents()
    for entry in held.values():
        residents.add_entry(entry)
    waiting = Hindered(held, residents, 100.0)
    no_right, no_key = Says(n1="not_authorised", n2="not_authorised"), Says(n1="key_waits", n2="key_waits")
    waiting.set_aside([1], no_right, NOW)  # type: ignore[arg-type]
    assert waiting.give_up_at == NOW + 100
    waiting.set_aside([2], no_right, NOW)  # type: ignore[arg-type]
    assert waiting.give_up_at == NOW + 60
    assert waiting.set_aside([1], no_key, NOW) == ([], [Count("key_waits", 2)])  # type: ignore[arg-type]
    assert waiting.set_aside([1], no_key, NOW) == ([], [])  # type: ignore[arg-type]
    assert waiting.given_up(NOW + 59.9) == ([], [])
    assert waiting.give_up_at == NOW + 60
    assert waiting.set_aside([1, 2], Says(), NOW) == ([1, 2], [])  # type: ignore[arg-type]
    assert [entry.standing for entry in held.values()] == [Standing.FRESH, Standing.FRESH]
    assert list(waiting) == []
    assert waiting.given_up(NOW + 500) == ([], [])
