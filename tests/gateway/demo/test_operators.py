"""What the demonstration's operators saw on `$SYS`, over crashes."""

from __future__ import annotations

import json

from gateway.demo.operators import Ledger
from gateway.demo.report import (
    Blamed,
)


def test_blame_is_kept_over_a_crash_of_the_one_who_blamed() -> None:
    ledger = Ledger(["r1a", "control"])
    assert ledger.not_ready() == ["r1a", "control"]

    def say(name: str, suspected: int, links_up: int = 3) -> None:
        figures = {"suspected": {"r1b": suspected}, "named": ["r1b"], "links": 3, "links_up": links_up}
        ledger.take_figures(name, json.dumps(figures).encode())

    say("r1a", 5)
    say("control", 1, links_up=2)
    ledger.take_figures("control", b"\xff")
    ledger.take_figures("control", b"[]")
    assert ledger.not_ready() == ["control"]
    ledger.restarted("r1a")
    assert ledger.not_ready() == ["r1a", "control"]
    assert ledger.blamed().suspected == {"r1b": {"r1a": 5, "control": 1}}
    say("r1a", 2)
    ledger.restarted("a key server that says nothing")
    assert ledger.blamed() == Blamed({"r1b": {"r1a": 7, "control": 1}}, {"r1b": ["r1a", "control"]})


def test_epochs_and_waits_are_those_of_all_roles() -> None:
    ledger = Ledger(["site", "control"])
    assert (ledger.epoch(), ledger.counted("key_waits")) == (0, 0)
    ledger.take_figures("site", b'{"epoch": 7, "counts": {"key_waits": 2}}')
    ledger.take_figures("control", b'{"epoch": 8, "counts": {}}')
    assert (ledger.epoch(), ledger.counted("key_waits")) == (8, 2)
