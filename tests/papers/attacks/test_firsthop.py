"""A flood ends at the first honest replica, and what is true goes on."""

from __future__ import annotations

import pytest

from papers.attacks.firsthop import FirstHopPassed, first_honest_node
from papers.experiments.draws import Draws


def test_an_honest_replica_passes_on_all_that_is_true_and_nothing_forged():
    passed = first_honest_node(Draws("flood"), 10)
    assert (passed.tried, passed.forged) == (100, 0)
    assert (passed.published, passed.true) == (10, 10)
    assert passed.fraction == 0


def test_a_node_that_verifies_nothing_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The control: with signatures unchecked, the inventions in the publisher's name go on."""
    monkeypatch.setattr("bridge.wire.admission.verify_header", lambda *_: None)
    assert first_honest_node(Draws("flood"), 3).forged > 0


def test_what_survives_is_a_fraction_of_what_was_tried():
    assert FirstHopPassed(200, 50, 1, 1).fraction == 0.25
    assert FirstHopPassed(0, 0, 0, 0).fraction == 0
