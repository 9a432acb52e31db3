"""What a replica retains: the latest record of each id and member, floors, bounds."""

from __future__ import annotations

from bridge.replica import RetainedBatches
from bridge.replica.retained_batches import OVERHEAD_BYTES, SEALINGS_MAX
from keys.batchheader import FLOOR, SNAPSHOT, BatchHeader, latest_per_topic
from tests.keys.test_batchheader import header, kept

OTHER = bytes([9] * 16)


def batch(first: int, *topics: str, generation: int = 1, counter: int = 1, **fields: object) -> BatchHeader:
    listed = latest_per_topic([kept(first + at, topic) for at, topic in enumerate(topics)])
    count = max(1, len(topics))
    shape = {"records": count, "previous": 0, "previous_ms": 0, "retained": listed}
    return header(first=first, generation=generation, counter=counter, **shape | fields)


def floor(number: int, *listed: tuple[int, str], generation: int = 1, counter: int = 9) -> BatchHeader:
    entries = latest_per_topic([kept(at, topic) for at, topic in listed])
    return header(
        flags=FLOOR, records=1, first=number + 9, previous=number, content_bytes=0, digests=(), retained=entries,
        generation=generation, counter=counter,
    )  # fmt: skip


def items(store: RetainedBatches[str], scope: int = 3) -> set[str]:
    return {item for _, item in store.of_scope(scope)}


def test_the_latest_record_of_each_topic_stays_and_no_former_one_comes_back() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    store.keep(batch(10, "a", "b"), "both", 100)
    store.keep(batch(20, "a"), "newer a", 100)
    assert items(store) == {"both", "newer a"}  # b is still in the former
    store.keep(batch(10, "a", "b", counter=7), "the former, sealed anew", 100)
    assert items(store) == {"both", "newer a", "the former, sealed anew"}
    store.keep(batch(21, "b"), "newer b", 100)
    assert items(store) == {"newer a", "newer b"}
    store.keep(batch(5, "a", generation=9), "replayed", 100)
    assert items(store) == {"newer a", "newer b"}


def test_members_and_scopes_do_not_touch_each_other() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    store.keep(batch(10, "a"), "mine", 100)
    store.keep(batch(99, "a", member=OTHER), "another's", 100)
    store.keep(batch(99, "a", scope=4), "another scope's", 100)
    assert items(store) == {"mine", "another's"}
    assert items(store, 4) == {"another scope's"}


def test_until_a_floor_former_sealings_stay_beside_the_newest() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    store.keep(batch(10, "a"), "first sealing", 100)
    again = {"flags": SNAPSHOT, "records": 1, "retained": (kept(10, "a"),)}
    store.keep(batch(5000, counter=2, **again), "snapshot", 100)
    assert items(store) == {"first sealing", "snapshot"}
    store.keep(floor(4096, (10, "a")), "floor", 0)
    assert items(store) == {"snapshot", "floor"}


def test_below_a_floor_only_what_it_lists_is_retained() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    store.keep(batch(10, "a"), "deleted", 100)
    store.keep(batch(20, "b"), "listed", 100)
    store.keep(batch(5000, "c"), "above", 100)
    store.keep(floor(4096, (20, "b")), "floor", 0)
    assert items(store) == {"listed", "above", "floor"}
    store.keep(batch(10, "a", generation=99), "offered again", 100)
    assert items(store) == {"listed", "above", "floor"}
    store.keep(floor(4000, (10, "a"), counter=3), "an older floor", 0)
    store.keep(batch(10, "a"), "offered again", 100)
    assert items(store) == {"listed", "above", "floor"}


def test_sealings_of_one_record_are_bounded() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    for counter in range(1, 40):
        store.keep(batch(10, "a", counter=counter), str(counter), 100)
    assert items(store) == {str(counter) for counter in range(40 - SEALINGS_MAX, 40)}


def test_a_member_that_retains_too_much_loses_its_own_oldest() -> None:
    each = 1000
    store: RetainedBatches[str] = RetainedBatches(100_000, 10 * each)
    store.keep(batch(1, "a", member=OTHER), "another's", 100)
    gone = sum(store.keep(batch(10 + at, f"t{at}"), str(at), each - OVERHEAD_BYTES) for at in range(25))
    assert gone == 15
    assert items(store) == {"another's", *map(str, range(15, 25))}
    assert store.held_bytes <= 11 * each


def test_what_is_over_is_erased_and_its_bytes_with_it() -> None:
    store: RetainedBatches[str] = RetainedBatches()
    store.keep(batch(10, "a", "b"), "x", 100)
    assert store.names(header().member, header().key_id)
    assert store.drop(lambda of: of.first == 10) == 2
    assert (len(store), store.held_bytes, items(store)) == (0, 0, set())
