"""`veilmq overlay place`: the file's names and limits around the three phases, which `tests/bridge` tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli
from gateway.owner.placing import place_replicas

EXAMPLE = Path(__file__).resolve().parents[3] / "configs" / "place.yaml"


def test_the_example_that_we_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["overlay", "place", str(EXAMPLE)]) == 0
    table = capsys.readouterr().out
    assert "campus - metro - cloud" in table
    assert cli.run(["overlay", "place", str(EXAMPLE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sizes = {entry["region"]: entry["replicas"] for entry in found["regions"]}
    assert sizes == {"campus": 7, "metro": 5, "cloud": 1, "archive": 1}  # the failing ones; odd; 10 along a path
    assert [entry["shares_secrets"] for entry in found["regions"]] == [True, True, False, False]
    assert sum(size - 1 for size in sizes.values()) + found["stripped"] + found["unused"] == 14


def test_the_worked_example_of_the_paper(tmp_path: Path) -> None:
    paths = [{"regions": ["B1", "B2", last], "weight": weight} for last, weight in (("S1", 2), ("S2", 3), ("S3", 5))]
    content = {"replicas": 10, "failures": dict.fromkeys(("B1", "B2", "S1", "S2", "S3"), 0), "paths": paths}
    path = tmp_path / "place.json"
    path.write_text(json.dumps(content))
    placed = place_replicas(path)
    assert [entry["phase_1"] for entry in placed.to_json()["paths"]] == [2, 3, 5]


def test_sizes_that_no_overlay_may_have_are_said(tmp_path: Path) -> None:
    regions = ["a", "b", "c"]
    content = {"replicas": 60, "failures": dict.fromkeys(regions, 1), "paths": [{"regions": regions}]}
    path = tmp_path / "place.json"
    path.write_text(json.dumps(content))
    (found,) = place_replicas(path).to_json()["paths"]
    assert (found["shares_per_key"], found["fits"]) == (21**3, False)
    content["path_max"] = 6
    path.write_text(json.dumps(content))
    (found,) = place_replicas(path).to_json()["paths"]
    assert (found["shares_per_key"], found["fits"]) == (7, True)  # phase 3 leaves them where most failed


GOOD = "replicas: 4\nfailures: {a: 1, b: 0}\npaths: [{regions: [a, b]}]\n"


@pytest.mark.parametrize(("old", "new", "words"), [
    ("replicas: 4", "replicas: -1", "replicas: input should be greater"),
    ("a: 1", "a: -1", "failures: a: give how often"),
    ("[a, b]", "[a, c]", "paths.0: c is no region under `failures`"),
    ("[a, b]", "[a, a]", "names at least one node and none twice"),
    ("[a, b]}", "[a, b], weight: .inf}", "paths.0.weight"),
    ("paths: [", "size: 3\npaths: [", "size: extra inputs"),
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
