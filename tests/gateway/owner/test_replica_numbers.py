"""`veilmq overlay place`: the file's names and limits around the three phases, which `tests/bridge` tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise, product
from math import comb, prod
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import cli
from gateway.owner.replica_numbers import place_replicas
from gateway.trust import TrustError, load_overlay
from tests.gateway.overlay_processes import OverlayProcesses

EXAMPLE = Path(__file__).resolve().parents[3] / "configs" / "place.yaml"


def test_the_example_that_we_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["overlay", "place", str(EXAMPLE)]) == 0
    table = capsys.readouterr().out
    assert "campus - metro - cloud" in table
    assert cli.run(["overlay", "place", str(EXAMPLE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sizes = {entry["region"]: entry["replicas"] for entry in found["regions"]}
    assert sizes == {"campus": 7, "metro": 3, "cloud": 3, "archive": 3}  # the failing one; odd; 10 along a path
    assert all(entry["fits"] for entry in found["paths"])
    assert sum(size - 1 for size in sizes.values()) + found["stripped"] + found["unused"] == 14


def test_what_is_printed_can_be_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a trust domain for each replica; less than three was refused by `overlay sign`."""
    assert cli.run(["overlay", "place", str(EXAMPLE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sizes = {entry["region"]: entry["replicas"] for entry in found["regions"]}
    edges = {tuple(edge) for entry in found["paths"] for edge in pairwise(entry["path"].split(" - "))}
    made = OverlayProcesses(tmp_path).make(sizes, sorted(edges), {"site": "campus"})
    signed = load_overlay(made.directory / "overlay.json", int(time.time() * 1000))
    assert {view.name: len(view.members) for view in signed.views.values()} == sizes


def own_placements(names: list[str], budget: int, path_max: int) -> Iterator[dict[str, int]]:
    """By exhaustion: all sizes that can be signed for one path of all of these, odd and three at least."""
    for counts in product(range(3, 3 + budget, 2), repeat=len(names)):
        steps = prod(comb(count, count // 2 + 1) for count in counts[1:])
        if sum(count - 1 for count in counts) <= min(budget, path_max) and prod(counts) <= 1024 and steps <= 42_875:
            yield dict(zip(names, counts, strict=True))


@settings(max_examples=40, deadline=None)
@given(
    failures=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    spare=st.integers(0, 12),
    room=st.integers(0, 12),
)
def test_every_placement_is_one_of_all_that_can_be_signed(failures: list[int], spare: int, room: int) -> None:
    names = [f"r{number}" for number in range(len(failures))]
    content = {
        "replicas": 2 * len(names) + spare, "failures": dict(zip(names, failures, strict=True)),
        "paths": [{"regions": names}], "path_max": 2 * len(names) + room,
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "place.json"
        path.write_text(json.dumps(content))
        sizes = place_replicas(path).sizes
    assert sizes in own_placements(names, content["replicas"], content["path_max"])
    most, least = max(failures), min(failures)
    if len(set(failures)) == len(failures):
        assert sizes[names[failures.index(most)]] >= sizes[names[failures.index(least)]]


def test_no_more_than_there_are_trust_domains(tmp_path: Path) -> None:
    path = tmp_path / "place.yaml"
    path.write_text("replicas: 20\nfailures: {a: 9, b: 0}\ndomains: {a: 4}\npaths: [{regions: [a, b]}]\n")
    placed = place_replicas(path)
    assert placed.sizes["a"] == 3
    assert placed.to_json()["unused"] == 20 - sum(size - 1 for size in placed.sizes.values())


def test_the_worked_example_of_the_paper(tmp_path: Path) -> None:
    paths = [{"regions": ["B1", "B2", last], "weight": weight} for last, weight in (("S1", 2), ("S2", 3), ("S3", 5))]
    content = {"replicas": 20, "failures": dict.fromkeys(("B1", "B2", "S1", "S2", "S3"), 0), "paths": paths}
    path = tmp_path / "place.json"
    path.write_text(json.dumps(content))
    placed = place_replicas(path)
    assert [entry["phase_1"] for entry in placed.to_json()["paths"]] == [2, 3, 5]


def test_sizes_that_no_overlay_may_have_are_made_smaller(tmp_path: Path) -> None:
    regions = ["a", "b", "c"]
    content = {"replicas": 60, "failures": dict.fromkeys(regions, 1), "paths": [{"regions": regions}]}
    path = tmp_path / "place.json"
    path.write_text(json.dumps(content))
    (found,) = place_replicas(path).to_json()["paths"]
    assert found["fits"]
    assert found["shares_per_key"] > 200, "as many as a key may have"
    content["path_max"] = 8
    path.write_text(json.dumps(content))
    (found,) = place_replicas(path).to_json()["paths"]
    assert (found["shares_per_key"], found["fits"]) == (5 * 3 * 3, True)  # phase 3 leaves them where most failed


def test_a_path_that_shares_cannot_pass_is_refused(tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(17)]
    path = tmp_path / "place.json"
    path.write_text(
        json.dumps({"replicas": 40, "failures": dict.fromkeys(names, 0), "paths": [{"regions": names}]})
    )  # fmt: skip
    with pytest.raises(TrustError, match="pass 16 regions at most; cut the path"):
        place_replicas(path)


def test_a_long_path_has_few_shares_and_wraps(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    path = tmp_path / "place.json"
    path.write_text(json.dumps({"replicas": 10, "failures": dict.fromkeys(names, 0), "paths": [{"regions": names}]}))
    (found,) = place_replicas(path).to_json()["paths"]
    assert (found["shares_per_key"], found["wraps_per_key"], found["fits"]) == (9, 27, True)


GOOD = "replicas: 4\nfailures: {a: 1, b: 0}\npaths: [{regions: [a, b]}]\n"


@pytest.mark.parametrize(("old", "new", "words"), [
    ("replicas: 4", "replicas: -1", "replicas: input should be greater"),
    ("replicas: 4", "replicas: 3", "replicas: 3 are too few: each of 2 regions needs 2 more"),
    ("paths:", "path_max: 3\npaths:", "path_max: 3 is too few for paths.0"),
    ("paths:", "domains: {a: 2}\npaths:", "domains: a: 2 cannot share a secret"),
    ("paths:", "domains: {d: 3}\npaths:", "domains: d is no region"),
    ("a: 1", "a: -1", "failures: a: give how often"),
    ("[a, b]", "[a, c]", "paths.0: c is no region under `failures`"),
    ("[a, b]", "[a, a]", "names at least one node and none twice"),
    ("[a, b]}", "[a, b], weight: .inf}", "paths.0.weight"),
    ("paths: [", "size: 3\npaths: [", "size: unknown key"),
    ("a: 1", "a: [", "not valid YAML"),
    (GOOD, "", "input should be a valid dictionary"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    path = tmp_path / "place.yaml"
    path.write_text(GOOD.replace(old, new))
    assert cli.run(["overlay", "place", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said
    assert str(path) in said


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["overlay", "place", str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err
