"""What an attacker reads and alters: nothing with guards, all without them, and the attack itself works."""

from __future__ import annotations

import pytest

from papers.attacks import forgery
from papers.attacks.forgery import Findings, Transit, flip
from papers.experiments.draws import Draws


def test_without_the_topic_key_nothing_is_read_or_altered():
    transit = Transit(Draws("attack"), guarded=True)
    assert not any(transit.attack().violated for _ in range(30))


def test_without_guards_the_same_attacks_succeed():
    transit = Transit(Draws("attack"), guarded=False)
    assert all(found.read and found.altered for found in (transit.attack() for _ in range(5)))


def test_an_attacker_with_the_topic_key_reads_but_does_not_alter():
    """The control: the attack on confidentiality works as soon as the key is there."""
    transit = Transit(Draws("attack"), guarded=True, insider=True)
    found = [transit.attack() for _ in range(5)]
    assert all(each.read and not each.altered for each in found)


def test_without_signatures_a_forgery_takes_the_place_of_what_is_true(monkeypatch: pytest.MonkeyPatch):
    """The control: signatures stop something that the other guards let through."""
    monkeypatch.setattr(forgery, "verify_header", lambda *_: None)
    with pytest.raises(AssertionError, match="refused a true publication"):
        Transit(Draws("attack"), guarded=True).attack()


def test_without_a_window_a_replay_is_believed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forgery.SequenceWindow, "seen", lambda *_: False)
    assert Transit(Draws("attack"), guarded=True).attack().altered


def test_findings_are_violations_one_by_one():
    assert [Findings(*each).violated for each in ((False, False), (True, False), (False, True))] == [False, True, True]


def test_one_bit_differs():
    data = bytes(range(20))
    for seed in range(50):
        changed = flip(data, Draws("flip", seed))
        assert len(changed) == len(data)
        assert sum((a ^ b).bit_count() for a, b in zip(changed, data, strict=True)) == 1
