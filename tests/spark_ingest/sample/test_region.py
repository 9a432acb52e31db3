"""The sample's region: truly sealed, split over its replicas, and the same for equal seeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.derivation import Derivation
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.sample.region import (
    MESSAGES_A_KEY,
    REGION,
    REPLICAS,
    SampledPublication,
    SampleGateway,
    SampleRegion,
    bytes_from,
)

AT = 1_800_000_000.0


def publications(count: int, topic: str = "plant/1") -> list[SampledPublication]:
    return [SampledPublication(topic, b"%d" % number, AT + number, AT + number + 1) for number in range(count)]


def region(seed: str = "seed") -> SampleRegion:
    return SampleRegion(seed, ["plant/#", "entities/#"], ["gate"])


@given(st.text(max_size=8), st.lists(st.integers(1, 64), max_size=8))
def test_a_source_of_bytes_repeats_itself_and_never_twice_the_same(seed: str, sizes: list[int]) -> None:
    one, other = bytes_from(seed), bytes_from(seed)
    drawn = [one(size) for size in sizes]
    assert [other(size) for size in sizes] == drawn
    assert [len(each) for each in drawn] == sizes
    first, second = one(32), one(32)
    assert first != second


def test_equal_seeds_are_equal_regions_and_others_are_not() -> None:
    assert region().overlay.owner == region().overlay.owner
    assert region().overlay.owner != region("other").overlay.owner
    wires = [list(SampleGateway(region(), "gate").seal(publications(3))) for _ in range(2)]
    assert wires[0] == wires[1]


@pytest.mark.parametrize(("bump", "opens"), [(0, True), (1, False)])
def test_a_job_with_the_keys_of_bump_0_opens_them_after_a_threshold_of_replicas(bump: int, opens: bool) -> None:
    made = region()
    collector = SpoolCollector(made.overlay, REGION.region)
    keys = (pair for scope in made.held_grants().scopes.values() for pair in scope.keys.items())
    collector.learn({name: Derivation(key).check_value for name, key in keys})
    (sealed,) = SampleGateway(made, "gate").seal(publications(1), bump)
    assert set(sealed.wires) == set(REPLICAS)
    for place, (replica, wire) in enumerate(sealed.wires.items(), 1):
        collector.receive(replica, wire, lambda: None, AT)
        if place < REGION.threshold:
            assert collector.take_group(10) is None or not collector.take_group(10), (
                "fewer than a threshold are nothing"
            )
    assert bool(collector.take_group(10)) is opens


def test_nothing_in_clear_is_on_the_wire() -> None:
    secret = b"the payload that nobody may see"
    published = SampledPublication("plant/1", secret, AT, AT, properties=(("unit", "only a reader sees this"),))
    (sealed,) = SampleGateway(region(), "gate").seal([published])
    for wire in sealed.wires.values():
        assert secret not in wire.payload
        assert "only a reader" not in str(wire.properties)


def test_a_data_key_is_for_so_many_messages() -> None:
    sealed = list(SampleGateway(region(), "gate").seal(publications(MESSAGES_A_KEY + 1)))
    keys = [dict(one.wires["replica-1"].properties)["vmq-key"] for one in sealed]
    assert len(set(keys[:MESSAGES_A_KEY])) == 1
    assert keys[-1] != keys[0]
    shares = {dict(wire.properties)["vmq-shares"] for wire in sealed[0].wires.values()}
    assert len(shares) == len(REPLICAS), "a share of its own for each"
