"""Counters that people read: bounded whatever peers invent, and shown as they are."""

from __future__ import annotations

import json

import pytest

from bridge.contract import Blame, Count
from gateway.base import figures as module
from gateway.base.figures import Figures, LinkFigures, LinkState


def link(peer: str, dialled: bool = True, **figures: float) -> LinkState:
    return LinkState(peer, dialled, True, 3, 4, LinkFigures(**figures))  # type: ignore[arg-type]


def test_counts_add_up_by_name_and_label() -> None:
    figures = Figures("g1", "gateway")
    for effect in (
        Count("sealed"),
        Count("sealed", 4),
        Count("refused", 1, "BadFrame"),
        Count("refused", 2, "Expired"),
    ):
        figures.count_effect(effect)
    assert figures.counts == {"sealed": 5, "refused.BadFrame": 1, "refused.Expired": 2}


def test_who_invents_reasons_fills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LABELS_MAX", 2)
    figures = Figures("g1", "gateway")
    for number in range(5):
        figures.count_effect(Count("refused", 1, str(number)))
    figures.count_effect(Count("refused", 1, "0"))
    assert figures.counts == {"refused.0": 2, "refused.1": 1}, "what is known goes on counting"


def test_blame_is_news_once() -> None:
    figures = Figures("g1", "gateway")
    assert [figures.blame(Blame("r1", False, "why")) for _ in range(3)] == [True, False, False]
    assert figures.suspected == {"r1": 3}
    first = Blame("r1", True, "".join(["two ", "contents"]))
    assert figures.blame(first)
    assert not figures.blame(Blame("r1", True, "".join(["two ", "headers"])))
    assert figures.named == {"r1": "two contents"}
    assert figures.suspected == {"r1": 3}, "to be named is no further suspicion"


def test_what_members_sent_is_kept_while_they_are_members() -> None:
    figures = Figures("r1", "replica")
    figures.count_received("site", 10)
    figures.count_received("site", 5)
    figures.count_received("gone", 1)
    figures.forget_all_but({"site"})
    assert set(figures.heard) == {"site"}
    assert (figures.heard["site"].received, figures.heard["site"].received_bytes) == (2, 15)


def test_a_link_counts_its_reconnects_and_not_its_first_connection() -> None:
    assert [link("r1", connections=n).reconnects for n in (0, 1, 5)] == [0, 0, 4]


def test_the_object_is_whole_sorted_and_compact() -> None:
    figures = Figures("g1", "gateway", links=lambda: [link("r1", sent=1), link("r1", False), link("r2")])
    figures.count_effect(Count("sealed"))
    figures.count_effect(Count("forwarded"))
    figures.blame(Blame("r2", True, "why"))
    shown = json.loads(figures.to_json(version=7))
    assert (shown["name"], shown["role"], shown["version"], shown["named"]) == ("g1", "gateway", 7, ["r2"])
    assert list(shown["counts"]) == ["forwarded", "sealed"]
    assert {peer: set(ways) for peer, ways in shown["peers"].items()} == {
        "r1": {"dialled", "accepted"},
        "r2": {"dialled"},
    }
    assert shown["peers"]["r1"]["dialled"] == {
        "up": True, "in_flight": 3, "waiting": 4, "reconnects": 0, "sent": 1, "sent_bytes": 0, "received": 0,
        "received_bytes": 0,
    }  # fmt: skip
    assert b" " not in figures.to_json()


def test_how_long_an_acknowledgement_takes_is_shown_once_it_was_measured() -> None:
    assert "acknowledge_s" not in link("r1").to_dict()
    assert link("r1", acknowledge_s=0.12345678).to_dict()["acknowledge_s"] == 0.123457


def test_not_more_links_than_fit_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_SHOWN_MAX", 2)
    figures = Figures("r1", "replica", links=lambda: [link(f"g{n}") for n in range(5)])
    assert list(figures.to_dict()["peers"]) == ["g0", "g1"]
