"""`veilmq overlay organise`: what it says, and that it signs only what the owner asked for."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.measuring import InterestSummary, ReplicaSummary, SwapProposal
from bridge.organising import InterestFilter, Swap
from gateway import cli
from gateway.commands import organising
from gateway.trust import load_key, load_overlay
from tests.gateway.overlay_processes import OverlayProcesses

ROW = ("north", "middle", "south")
ORGANISE = {"links": [["south", "north"]], "interval_s": 60}
RTTS = {1: ((2, 90_000), (3, 1_000)), 2: ((1, 90_000), (3, 90_000)), 3: ((1, 1_000), (2, 90_000))}


@pytest.fixture
def made(tmp_path: Path) -> OverlayProcesses:
    overlay = OverlayProcesses(tmp_path)
    overlay.make(dict.fromkeys(ROW, 1), [ROW[:2], ROW[1:]], {"site": "north", "control": "south"}, trusted=ROW)
    return overlay


@pytest.fixture
def veilmq(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = cli.run([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


def answers(made: OverlayProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica answers with what all of them signed."""
    told = [base64.b64encode(each.encode()).decode() for each in signed_words(made)]
    monkeypatch.setattr(organising, "asked", lambda bind: told)


def signed_words(made: OverlayProcesses) -> Iterator[ReplicaSummary | InterestSummary]:
    """The outer regions want the same, the middle one nothing."""
    for region, name in enumerate(ROW, 1):
        identity = load_key(made.directory / f"{name}1" / "key.pem")
        said = ReplicaSummary(
            f"{name}1", region, int(time.time()) // 60, 60, 0, 16, processing_us=50, links=RTTS[region]
        )  # fmt: skip
        wanted = InterestFilter()
        wanted.add_ids([b"%d" % number for number in range(100)] if region != 2 else [])
        other = InterestSummary(f"{name}1", region, int(time.time()) // 60, 60, 4, wanted.encode())
        yield said.signed(identity)
        yield other.signed(identity)


def described(made: OverlayProcesses) -> None:
    made.describe(lambda description: description.update(organise=ORGANISE))


def test_it_says_what_it_would_sign_and_signs_it(
    made: OverlayProcesses, monkeypatch: pytest.MonkeyPatch, veilmq: Any
) -> None:
    described(made)
    answers(made, monkeypatch)
    path = made.directory / "overlay.json"
    before = path.read_bytes()
    organise = ("overlay", "organise", path, "--ask", "127.0.0.1:1")
    status, out, err = veilmq(*organise)
    assert (status, err) == (0, "")
    assert out.startswith("join north - south, part ")
    assert "% less" in out
    assert path.read_bytes() == before
    status, out, err = veilmq(*organise, "--apply")
    assert status == 2
    assert "--owner DIR" in err
    status, out, err = veilmq(*organise, "--apply", "--owner", made.directory / "owner", "--grace", "7")
    assert (status, err) == (0, "")
    assert "version 3 signed" in out
    signed = load_overlay(path, int(time.time() * 1000))
    assert (signed.policy.version, signed.policy.tree.number, signed.policy.tree.grace_s) == (3, 1, 7)
    told = yaml.safe_load(out[out.index("edges: ") :])
    assert told["organise"]["links"] != []
    made.describe(lambda description: description.update(told))
    again = load_overlay(path, int(time.time() * 1000))
    assert set(map(frozenset, again.policy.edges)) == set(map(frozenset, signed.policy.edges))
    assert again.policy.tree.number == 1, "what was signed stays as it is"
    status, out, _ = veilmq(*organise, "--json")
    assert status == 0
    assert json.loads(out)["rests_until"] > time.time()


def test_who_does_not_measure_or_answer_is_named_in_one_line(
    made: OverlayProcesses, monkeypatch: pytest.MonkeyPatch, veilmq: Any
) -> None:
    path = made.directory / "overlay.json"
    status, _, err = veilmq("overlay", "organise", path, "--ask", "127.0.0.1:1")
    assert status == 2
    assert "no running member" in err
    answers(made, monkeypatch)
    status, _, err = veilmq("overlay", "organise", path, "--ask", "127.0.0.1:1")
    assert status == 2
    assert "has no `organise`" in err


def test_a_way_back_from_an_edge_that_carries_nothing_says_so_instead_of_a_cost(
    made: OverlayProcesses, monkeypatch: pytest.MonkeyPatch, veilmq: Any
) -> None:
    described(made)
    answers(made, monkeypatch)
    swap = Swap((1, 2), (1, 3), (1, 3, 2), 0.0, 0.0)
    found = SwapProposal(dict(enumerate(ROW, 1)), swap, "the edge that came carries nothing")
    monkeypatch.setattr("gateway.owner.organising.proposed", lambda *_: found)
    status, out, _ = veilmq("overlay", "organise", made.directory / "overlay.json", "--ask", "127.0.0.1:1")
    assert status == 0
    assert out.splitlines()[:2] == [
        "join north - middle, part north - south",
        "the edge that came carries nothing; what went before is measured still",
    ]


def test_the_organiser_and_the_owner_are_not_asked_for_at_once(made: OverlayProcesses, veilmq: Any) -> None:
    path = made.directory / "overlay.json"
    for arguments, said in (
        ((), "whom to ask"),
        (("--as", made.directory / "site", "--owner", made.directory / "owner"), "leave --owner and --ask out"),
        (("--as", made.directory / "site", "--ask", "127.0.0.1:1"), "leave --owner and --ask out"),
        (("--as", made.directory / "site"), "has no `organise`"),
    ):
        status, _, err = veilmq("overlay", "organise", path, *arguments)
        assert (status, len(err.splitlines())) == (2, 1)
        assert said in err
    described(made)
    status, _, err = veilmq("overlay", "organise", path, "--as", made.directory / "site", "--apply")
    assert status == 2
    assert "site is not the organiser of version 2" in err


def test_where_no_replica_is_reached_it_says_which(made: OverlayProcesses, veilmq: Any) -> None:
    described(made)
    made.hand_out("site")
    status, out, err = veilmq(
        "overlay", "organise", made.directory / "site-overlay.json", "--as", made.directory / "site", "--wait", "1"
    )
    assert (status, err) == (1, "")
    assert out.startswith("north1: ")
