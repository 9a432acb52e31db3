"""What may be new on a topic of which nothing was delivered yet."""

from __future__ import annotations

import pytest

from bridge.reader.intake import FRESH_S, GATEWAY_SESSION_S, Away

NOW = 1_800_000_000.0


@pytest.mark.parametrize(("age_s", "fresh"), [(0, True), (FRESH_S, True), (FRESH_S + 1, False), (-FRESH_S - 1, False)])
def test_without_a_former_life_only_the_age_counts(age_s: float, fresh: bool):
    assert Away().is_fresh(int((NOW - age_s) * 1000), NOW) is fresh


def test_what_was_sealed_while_we_were_away_is_no_replay_as_long_as_replicas_keep_it():
    away = Away(since=NOW - 3000, until=NOW - 600)
    for sealed, fresh in ((NOW - 3000, True), (NOW - 1500, True), (NOW - 3400, False), (NOW - 301, True)):
        assert away.is_fresh(int(sealed * 1000), NOW) is fresh, sealed - NOW
    sealed_ms = int((NOW - 3000) * 1000)
    assert away.is_fresh(sealed_ms, NOW - 3000 + GATEWAY_SESSION_S + FRESH_S)
    assert not away.is_fresh(sealed_ms, NOW - 3000 + GATEWAY_SESSION_S + FRESH_S + 1)


def test_what_our_former_process_let_in_is_not_asked_again():
    assert Away(let_in=True).is_fresh(0, NOW)
