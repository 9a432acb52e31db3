"""What members see of each other: f liars of each region move no number beyond what honest ones say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.topology.placement import Path
from bridge.topology.replica_proposals import ReplicaFigures, next_step
from bridge.topology.witnesses import BIN_S, WINDOW_S, LinkNow, LinkSeen, LinkWitness, agreed

REGIONS = {
    region: [f"{region}{place}" for place in "abcde"[:size]] for region, size in ((1, 3), (2, 3), (3, 4), (4, 5))
}
UP, DOWN = LinkNow(up=True), LinkNow(up=False)
said = st.builds(
    LinkSeen, st.floats(0, 1e9), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6)
)
FIELDS = ("failures", "down", "from_per_s", "to_per_s")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_liars_move_no_number_beyond_what_honest_witnesses_say(data: st.DataObject):
    honest: list[list[LinkSeen]] = []
    reports: dict[str, dict[str, LinkSeen]] = {}
    for region in (2, 3, 4):
        members = data.draw(st.permutations(REGIONS[region]))
        liars = (len(members) - 1) // 2
        for number, witness in enumerate(members):
            one = data.draw(said)
            if number >= liars:
                honest.append([one])
                reports[witness] = {"1a": one}
            elif data.draw(st.booleans()):  # or it says nothing
                reports[witness] = {"1a": one}
    reports["1b"] = {"1a": data.draw(said)}  # its own region's word does not count
    counted = agreed(reports, REGIONS, "1a", 1)
    for name in FIELDS:
        values = [getattr(one, name) for each in honest for one in each]
        assert min(values) <= getattr(counted, name) <= max(values)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_liars_do_not_move_what_is_proposed_where_honest_witnesses_agree(data: st.DataObject):
    truth = {name: LinkSeen() for members in REGIONS.values() for name in members}
    truth["1a"] = LinkSeen(failures=40, down_s=30.0, watched_s=100.0)
    reports = {witness: dict(truth) for members in REGIONS.values() for witness in members}
    paths = [Path((1, 2, 3)), Path((4, 3))]

    def proposed():
        counted = {one: agreed(reports, REGIONS, one, region) for region, each in REGIONS.items() for one in each}
        figures = ReplicaFigures({r: c.failures for r, c in counted.items()}, {r: c.down for r, c in counted.items()})
        return next_step({**REGIONS, 3: REGIONS[3][:3]}, paths, figures, 1)

    step = proposed()
    assert step is not None
    assert (step.region, step.is_attach) == (1, True)
    for members in REGIONS.values():
        for liar in data.draw(st.permutations(members))[: (len(members) - 1) // 2]:
            reports[liar] = data.draw(st.dictionaries(st.sampled_from(sorted(truth)), said))
    assert proposed() == step


def test_k_of_one_region_have_to_say_so_not_k_of_several():
    broken = {"1a": LinkSeen(9, 1.0, 1.0)}
    assert agreed({"2a": broken, "3a": broken, "4a": broken}, REGIONS, "1a", 1).failures == 0
    assert agreed({"2a": broken, "2c": broken}, REGIONS, "1a", 1).failures == 9
    assert agreed({"3a": broken, "3b": broken}, REGIONS, "1a", 1).failures == 0, "k is 3 of 4"


def test_of_a_gateway_the_replicas_of_its_own_region_speak():
    rate = {"site": LinkSeen(0, 0.0, 10.0, 50.0, 2.0)}
    counted = agreed({"1a": rate, "1b": rate}, REGIONS, "site", 1)
    assert (counted.from_per_s, counted.to_per_s) == (50.0, 2.0)


def look(witness: LinkWitness, *links: tuple[float, dict[str, LinkNow]]) -> None:
    for now, each in links:
        witness.note_links(each, now)


def test_a_witness_counts_breaks_time_and_messages():
    witness = LinkWitness()
    look(
        witness,
        (0.0, {"a": DOWN, "b": UP}),
        (2.0, {"a": LinkNow(True, 10, 0), "b": UP}),
        (4.0, {"a": LinkNow(False, 20, 4), "b": UP}),
        (8.0, {"a": LinkNow(True, 30, 8), "b": UP}),
        (10.0, {"a": LinkNow(True, 3, 0), "b": UP}),  # counted anew after a restart
    )
    seen = witness.seen()
    assert seen["a"] == LinkSeen(1, 2.0, 8.0, 20 / 8, 8 / 8)
    assert seen["b"].failures == 0
    assert seen["b"].watched_s == 10.0
    assert seen["a"].down == 0.25


def test_a_break_between_two_looks_is_noticed():
    witness = LinkWitness()
    look(witness, (0.0, {"a": LinkNow(True, made=1)}), (2.0, {"a": LinkNow(True, made=2)}))
    assert witness.seen()["a"].failures == 1


def test_a_member_that_never_started_has_not_failed():
    witness = LinkWitness()
    look(witness, *((float(at), {"a": DOWN, "b": UP}) for at in range(5)))
    assert "a" not in witness.seen()


def test_who_is_cut_off_itself_blames_nobody():
    witness = LinkWitness()
    look(witness, (0.0, {"a": UP, "b": UP}), (2.0, {"a": DOWN, "b": DOWN}), (600.0, {"a": UP, "b": UP}))
    assert all(one.failures == 0 and one.down_s == 0 for one in witness.seen().values())


def test_what_is_older_than_the_window_is_forgotten_and_so_is_who_left(monkeypatch: pytest.MonkeyPatch):
    witness = LinkWitness()
    look(witness, (0.0, {"a": UP, "b": UP}), (1.0, {"a": DOWN, "b": UP}), (2.0, {"a": UP, "b": UP}))
    assert witness.seen()["a"].failures == 1
    look(witness, (WINDOW_S + 2 * BIN_S, {"a": UP, "b": UP}))
    assert witness.seen()["a"].failures == 0
    look(witness, (WINDOW_S + 2 * BIN_S + 1, {"b": UP}))
    assert set(witness.seen()) == {"b"}
    monkeypatch.setattr("bridge.topology.witnesses.PEERS_MAX", 2)
    look(witness, (WINDOW_S + 2 * BIN_S + 2, {"b": UP, "c": UP, "d": UP, "e": UP}))
    assert len(witness.seen()) == 2
