"""What is said of how a member stands: each cause once, with its cure, and never that all is well where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.base import HistoryState
from gateway.health import BROKEN, DEGRADED, WELL, HealthReport, HealthWatch, View, judge
from gateway.overlay import OverlayStanding, RegionPresence, RegionStanding, ScopeRights

NOW = 1_800_000_000.0
DAY_S = 86_400.0
THREE = ("r1", "r2", "r3")


def region(*up: str) -> RegionStanding:
    away = {name: f"{name} does not answer" for name in THREE if name not in up}
    return RegionStanding("west", THREE, up, 2, away)


def stands(**fields: object) -> OverlayStanding:
    return replace(OverlayStanding("g1", "gateway", 5, regions=(region(*THREE),)), **fields)


def said(report: HealthReport) -> str:
    return "\n".join(finding.text for finding in report.findings)


def test_nothing_wrong_is_well() -> None:
    assert judge(View(NOW)).level == WELL
    report = judge(View(NOW, stands(versions={"r1": 5, "r2": 5}, clocks={"r1": 0.2}), ends={"x": NOW + 61 * DAY_S}))
    assert (report.level, report.findings) == (WELL, ())


def test_a_disk_that_takes_no_history_is_said_once() -> None:
    kept = tuple(HistoryState(scope, refused="no space left") for scope in ("plant/#", "yard/#"))
    for view in (View(NOW, stands(histories=kept)), View(NOW, histories=kept)):
        report = judge(view)
        assert report.level == DEGRADED
        assert said(report).count("no space left") == 1
    assert [one["scope"] for one in report.to_json()["histories"]] == ["plant/#", "yard/#"]


def test_a_replica_that_is_away_is_named_and_a_lost_quorum_breaks() -> None:
    report = judge(View(NOW, stands(regions=(region("r1", "r3"),))))
    assert report.level == DEGRADED
    assert "region west: 2 of 3 replicas connected, 2 needed: r2 is away (r2 does not answer)" in said(report)
    report = judge(View(NOW, stands(regions=(region("r1"),))))
    assert report.level == BROKEN
    assert "quorum is lost" in said(report)
    assert "r2 is away" in said(report)
    assert "r3 is away" in said(report)


@pytest.mark.parametrize(
    ("view", "level", "word"),
    [
        (View(NOW, ends={"certificate of listener a": NOW + 59 * DAY_S}), DEGRADED, "ends in 59 days"),
        (View(NOW, ends={"certificate of listener a": NOW - 3 * DAY_S}), BROKEN, "ended 3 days ago"),
        (View(NOW, stands(ends={"certificate of g1 in the overlay": NOW + DAY_S})), DEGRADED, "overlay renew"),
        (View(NOW, disk_free={"data": 500 << 20}), DEGRADED, "500 MiB are free"),
        (View(NOW, disk_free={"data": 1 << 20}), BROKEN, "make room"),
        (View(NOW, connections=95, connections_max=100), DEGRADED, "limits.connections"),
        (View(NOW, defects=3), DEGRADED, "3 internal errors since the start"),
        (View(NOW, stands(failures=2), defects=1), DEGRADED, "3 internal errors since the start"),
        (View(NOW, stands(removed=True)), BROKEN, "lists g1 no longer"),
        (View(NOW, stands(refusals={"r1": "time"})), DEGRADED, "r1 refuses what we publish: time; compare its clock"),
        (View(NOW, stands(refused={"g2": "time"})), DEGRADED, "g1 refuses what g2 publishes: time; set both clocks"),
        (View(NOW, stands(clocks={"r1": 6.0})), DEGRADED, "r1 was 6 s ahead of ours"),
        (View(NOW, stands(clocks={"r1": -61.0})), BROKEN, "61 s behind ours"),
        (View(NOW, stands(versions={"r1": 4, "r2": 5})), DEGRADED, "r1 still has an older version"),
        (View(NOW, stands(versions={"r1": 6})), DEGRADED, "r1 has version 6 of the overlay, we have 5"),
        (View(NOW, stands(named={"r3": "altered a share"})), DEGRADED, "r3 lied: altered a share"),
        (View(NOW, stands(outbox_depth=9, oldest_s=61.0)), DEGRADED, "9 publications wait"),
        (View(NOW, stands(outbox_bytes=95, outbox_bytes_max=100)), BROKEN, "95 % full"),
        (View(NOW, stands(keys_missing=("plant/#",))), BROKEN, "no key of epoch 0 for plant/#"),
        (View(NOW, stands(keys_late=("plant/#",), late_s=60.0, epoch_left_s=30.0)), DEGRADED, "no key of the next"),
    ],
)
def test_each_cause_is_said_with_its_level(view: View, level: str, word: str) -> None:
    report = judge(view)
    assert report.level == level
    assert word in said(report)
    assert len(report.findings) == 1


def test_keys_that_may_still_come_are_not_late() -> None:
    assert judge(View(NOW, stands(keys_late=("plant/#",), late_s=10.0, epoch_left_s=60.0))).level == WELL


def test_key_servers_away_matter_more_when_a_key_is_missing() -> None:
    servers = RegionStanding("", ("k1", "k2", "k3", "k4"), ("k1",), 3, {"k2": "", "k3": "", "k4": ""})
    assert judge(View(NOW, stands(key_servers=servers))).level == DEGRADED
    report = judge(View(NOW, stands(key_servers=servers, keys_missing=("plant/#",))))
    assert report.level == BROKEN
    assert "start k2, k3, k4" in said(report)


def presence(name: str, silent: tuple[str, ...] = (), **reaches: int) -> RegionPresence:
    members = tuple(f"{name}{number}" for number in (1, 2, 3))
    return RegionPresence(name, members, 2, dict.fromkeys(members, 50.0), silent, reaches)


@pytest.mark.parametrize(
    ("regions", "level", "word"),
    [
        ((presence("west", east=3), presence("east", west=3)), WELL, ""),
        ((presence("east", ("east1",)),), DEGRADED, "region east: 2 of 3 replicas heard, 2 needed"),
        ((presence("east", ("east1", "east2")),), BROKEN, "what is published reaches no client there"),
        ((presence("east", ("east1", "east2")),), BROKEN, "east1 (50 s ago), east2 (50 s ago)"),
        ((presence("west", east=1), presence("east")), BROKEN, "region west reaches 1 replicas of region east"),
        ((presence("east", south=1), presence("south")), BROKEN, "region east reaches 1 replicas of region south"),
        ((presence("east", ("east1", "east2"), south=1), presence("south")), BROKEN, "quorum is lost"),
    ],
)
def test_other_regions_faults_are_shown_and_leave_this_process_ready(
    regions: tuple[RegionPresence, ...], level: str, word: str
) -> None:
    report = judge(View(NOW, stands(presence=regions)))
    assert report.level == level
    assert word in said(report)
    assert len(report.findings) == (level != WELL)
    assert HealthWatch(lambda: View(NOW, stands(presence=regions)), lambda: NOW).ready


def test_a_publisher_that_spends_its_budget_is_no_fault_of_the_replica() -> None:
    assert judge(View(NOW, stands(refused={"g2": "budget", "g3": "form"}))).level == WELL


def test_nothing_is_said_of_other_regions_where_no_word_can_arrive() -> None:
    report = judge(
        View(NOW, stands(regions=(region("r1"),), presence=(presence("east", ("east1", "east2", "east3")),)))
    )
    assert [finding.key for finding in report.findings] == ["region:west:broken"]


def test_a_lost_right_is_broken_and_a_right_that_clients_lack_degraded() -> None:
    lost = ScopeRights("plant/#", publish=True, read=False, lost=("read",))
    report = judge(View(NOW, stands(rights=(lost,))))
    assert report.level == BROKEN
    assert "g1 lost the right to read plant/#: subscriptions are refused (0x87)" in said(report)
    assert "veilmq trust grant overlay.json --owner owner --member g1 --read 'plant/#'" in said(report)
    refused = ScopeRights("plant/#", publish=False, read=True, refused=("publish",))
    report = judge(View(NOW, stands(rights=(refused,))))
    assert (report.level, len(report.findings)) == (DEGRADED, 1)
    assert "g1 has no right to publish plant/#: publications are refused" in said(report)
    assert judge(View(NOW, stands(rights=(ScopeRights("plant/#", publish=False, read=True),)))).level == WELL
