"""`veilmq status --overlay`: one verdict from all members that answer, and from what they tell of others."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bridge.document import Overlay
from gateway.commands import overlay_status, status
from gateway.commands.overlay_status import OverlayVerdict, judge
from tests.support.regions import row_of_regions, shared

overlay = shared(lambda: row_of_regions(2, {"g1": 1, "g2": 2}).overlay)
REGIONS = {1: ["r1a", "r1b", "r1c"], 2: ["r2a", "r2b", "r2c"]}
AT = {name: f"127.0.0.1:{port}" for port, name in enumerate(("g1", "g2", *REGIONS[1], *REGIONS[2]), 9000)}


def answer(name: str, home: int, *away: str, silent: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A gateway's answer: links with its region, and words from the other one."""
    there = REGIONS[3 - home]
    findings = []
    if silent:
        text = f"region region-{3 - home}: quorum is lost"
        findings.append({"level": "broken", "key": f"region:region-{3 - home}:broken", "text": text, "about": "x"})
    return {
        "level": "broken" if silent else "well",
        "findings": findings,
        "overlay": {
            "name": name, "version": 1,
            "regions": [{"name": f"region-{home}", "members": REGIONS[home],
                         "up": [each for each in REGIONS[home] if each not in away]}],
            "presence": [{"name": f"region-{3 - home}", "members": there, "silent": list(silent),
                          "heard": dict.fromkeys(there, 5.0)}],
        },
    } | more  # fmt: skip


AWAY = {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": "nothing answers at X"}]}


def judged(overlay: Overlay, answers: Mapping[str, Mapping[str, Any]]) -> OverlayVerdict:
    return judge(overlay, {AT[name]: one for name, one in answers.items()}, {AT[name]: name for name in answers})


def test_replicas_that_cannot_be_asked_are_known_by_their_links_and_words(overlay: Overlay) -> None:
    verdict = judged(overlay, {"g1": answer("g1", 1)})
    assert verdict.level == "well"
    standings = {name: one["standing"] for name, one in verdict.members.items()}
    assert standings == {"g1": "well", "g2": "not asked"} | dict.fromkeys(REGIONS[1], "connected") | dict.fromkeys(
        REGIONS[2], "heard"
    )


def test_what_several_members_say_of_a_region_is_shown_once(overlay: Overlay) -> None:
    silent = ("r2a", "r2b")
    both = {"g1": answer("g1", 1, silent=silent), "r1a": answer("r1a", 1, silent=silent)}
    verdict = judged(overlay, both)
    assert verdict.level == "broken"
    assert [(one["text"], one["said_by"]) for one in verdict.findings] == [
        ("region region-2: quorum is lost", ["g1", "r1a"])
    ]
    assert verdict.members["r2a"]["standing"] == "away"
    assert verdict.members["r2c"]["standing"] == "heard"


def test_a_gateway_that_does_not_answer_breaks_and_a_replica_degrades(overlay: Overlay) -> None:
    assert judged(overlay, {"g1": answer("g1", 1), "r1b": AWAY}).level == "degraded"
    verdict = judged(overlay, {"g1": answer("g1", 1), "g2": AWAY})
    assert (verdict.level, verdict.findings[0]["text"]) == (
        "broken", f"g2 does not answer at {AT['g2']}: its clients are not served",
    )  # fmt: skip


def test_faults_of_a_member_alone_name_it(overlay: Overlay) -> None:
    full = answer("g1", 1)
    full["findings"] = [{"level": "degraded", "key": "disk:data", "text": "data: 5 MiB are free on its disk"}]
    right = {"level": "broken", "key": "right:read:x", "text": "g1 lost the right to read x"}
    full["findings"].append(right)
    assert [one["text"] for one in judged(overlay, {"g1": full}).findings] == [
        "g1 lost the right to read x", "g1: data: 5 MiB are free on its disk",
    ]  # fmt: skip


def test_newer_versions_strangers_and_nobody_at_all(overlay: Overlay) -> None:
    newer = copy.deepcopy(answer("g1", 1))
    newer["overlay"]["version"] = 7
    assert "members have version 7 of the overlay, the file is" in judged(overlay, {"g1": newer}).findings[0]["text"]
    verdict = judge(overlay, {"127.0.0.1:1": AWAY}, {})
    assert verdict.level == "broken"
    assert {one["text"] for one in verdict.findings} == {
        "127.0.0.1:1: nothing answers at X",
        "no member could be asked; start them, or name metrics ports with --ask HOST:PORT",
    }


@pytest.mark.long
def test_members_of_a_site_are_found_beside_its_overlay(
    tmp_path: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    assert veilmq("init", site, "--port", "28883")[0] == 0
    asked: list[str] = []

    def well(bind: str) -> dict[str, Any]:
        asked.append(bind)
        return AWAY

    monkeypatch.setattr(status, "asked", well)
    code, out, _ = veilmq("status", "--overlay", site / "overlay.json", "--json")
    assert (code, len(asked)) == (2, 5)
    assert {one["standing"] for one in json.loads(out)["members"].values()} == {"does not answer"}
    assert overlay_status.binds_beside(site / "g1" / "overlay.json").keys() == {"g1", "g2", "r1", "r2", "r3"}
    code, out, _ = veilmq("status", "--overlay", site / "overlay.json")
    assert out.rstrip().endswith("overlay: broken; 0 of 5 members answered")


@pytest.mark.parametrize("options", [[], ["-c", "x.yaml", "--overlay", "o.json"], ["-c", "x.yaml", "--ask", "h:1"]])
def test_one_member_or_one_overlay(veilmq: Any, options: list[str]) -> None:
    code, _, error = veilmq("status", *options)
    assert code == 2
    assert "whose status?" in error
    assert len(error.strip().splitlines()) == 1
