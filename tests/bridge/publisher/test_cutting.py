"""Cuts: how many records, when they leave, what they say of what came before, and what becomes of what is dropped."""

from __future__ import annotations

from bridge.publisher import BatchLimits, Cut, OutboxRow, ScopeChain
from keys.records import Records, encode


def row(first: int, count: int = 1, before: tuple[int, int] = (0, 0), qos: int = 1, size: int = 10) -> OutboxRow:
    times = [1000 + first + at for at in range(count)]
    content = encode(bytes([qos]) * count, times, [b"t"] * count, [b""] * count, [bytes(size)] * count)
    return OutboxRow(first, Records.decode(content), *before)


def chain_of(*rows: tuple[int, int], limits: BatchLimits | None = None, qos: int = 1) -> ScopeChain:
    chain = ScopeChain(limits or BatchLimits())
    for first, count in rows:
        chain.append(row(first, count, chain.tail, qos))
    return chain


def took(chain: ScopeChain, now: float = 0.0) -> Cut:
    cut = chain.take(now)
    assert cut is not None
    return cut


def test_a_lone_message_waits_for_nothing() -> None:
    chain = chain_of((1, 1))
    assert chain.due(5.0) == 5.0
    cut = took(chain, 5.0)
    assert (cut.first, cut.count, cut.previous) == (1, 1, 0)
    assert cut.records() is cut.parts[0][0].records  # sealed as it was stored
    assert chain.due(5.0) is None


def test_what_follows_waits_for_the_linger_or_the_acknowledgement() -> None:
    chain = chain_of((1, 1), (2, 1))
    chain.limits = BatchLimits(records=1)
    cut = took(chain, 5.0)
    chain.limits = BatchLimits()
    assert chain.due(5.0) == 5.005
    chain.settled(cut)
    assert chain.due(5.001) == 5.001


def test_what_fills_a_cut_waits_for_nothing() -> None:
    assert chain_of((1, 4), limits=BatchLimits(records=2)).due(0.0) == 0.0
    chain = chain_of((1, 5), limits=BatchLimits(records=2))
    sizes = [took(chain).count for _ in range(3)]
    assert sizes == [2, 2, 1]
    large = chain_of((1, 10), limits=BatchLimits(bytes=100))
    counts = []
    while (cut := large.take(0.0)) is not None:
        counts.append(cut.count)
    assert sum(counts) == 10
    assert max(counts) <= 4
    assert chain_of((1, 1), limits=BatchLimits(bytes=1)).take(0.0) is not None  # one goes, however large


def test_no_cut_crosses_a_multiple_of_4096_or_a_hole() -> None:
    chain = chain_of((4090, 10), (5000, 1))
    cuts = []
    while (cut := chain.take(0.0)) is not None:
        cuts.append((cut.first, cut.count, cut.previous))
    assert cuts == [(4090, 6, 0), (4096, 4, 4095), (5000, 1, 4099)]


def test_qos_0_is_nobodys_predecessor() -> None:
    chain = chain_of((1, 2))
    chain.append(row(3, 2, chain.tail, qos=0))
    chain.append(row(5, 1, chain.tail))
    chain.limits = BatchLimits(records=2)
    found = [took(chain) for _ in range(3)]
    assert [(cut.first, cut.previous, cut.previous_ms) for cut in found] == [(1, 0, 0), (3, 2, 1002), (5, 2, 1002)]


def test_an_acknowledgement_counts_for_its_own_cut_only() -> None:
    chain = chain_of((1, 4), limits=BatchLimits(records=2))
    first, second = took(chain), took(chain)
    chain.settled(first)
    assert chain.recut() == [second]
    assert chain.done(second) == []  # it is no cut any more
    again = took(chain)
    assert (again.first, again.count, again.previous) == (3, 2, 2)
    assert chain.done(first) == []
    assert [row.first for row in chain.done(again)] == [1]
    assert not chain.rows


def test_what_is_dropped_unsealed_is_passed_over() -> None:
    chain = chain_of((1, 1), (2, 2), (4, 1), limits=BatchLimits(records=1))
    took(chain)
    chain.drop(chain.rows[2])
    cut = took(chain)
    assert (cut.first, cut.previous, cut.previous_ms) == (4, 1, 1001)
    assert [*chain.rows] == [1, 4]


def test_what_was_sealed_or_is_followed_by_something_sealed_becomes_a_void() -> None:
    chain = chain_of((1, 1), (2, 1), (3, 1), limits=BatchLimits(records=1))
    took(chain), took(chain)
    chain.drop(chain.rows[2])
    void = took(chain)
    assert (void.first, void.count, void.previous, void.is_void) == (2, 1, 1, True)
    assert took(chain).previous == 2  # who gets the void waits for nothing
    assert chain.recut()[0].first == 1
    assert [row.first for row in chain.done(void)] == [2]
    restarted = chain_of((7, 1), (8, 1))
    restarted.restored((0, 0), 8)
    restarted.drop(restarted.rows[7])
    void = took(restarted)
    assert void.is_void  # its successor may have been sealed before the restart
    assert void.count == 1
    assert not took(restarted).is_void
