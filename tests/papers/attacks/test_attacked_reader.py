"""A real gateway between liars: never deceived, and the test would notice if it were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from bridge.contract import Committed, Publication, Send, Wire
from papers.attacks.attacked_reader import AttackedReader
from papers.attacks.forgery import TOPIC
from papers.experiments.draws import Draws


def test_nothing_altered_forged_or_repeated_is_delivered_and_the_true_ones_are() -> None:
    attacked = AttackedReader(Draws("attack", 1))
    assert not any(attacked.attack() for _ in range(12))


class Insider(AttackedReader):
    """The attacker can make the publisher's gateway say something else."""

    def _forgeries(self, sends: Sequence[Send]) -> Iterator[tuple[str, Wire]]:
        self._sequence += 1
        other = Publication(TOPIC, b"other", 1, time_ms=int(self._now * 1000))
        for one in self._handle(self._publisher, Committed(((self._sequence, self._sequence - 2, other),))):
            if isinstance(one, Send):
                yield one.peer, one.wire


def test_it_notices_a_subscriber_that_is_deceived() -> None:
    assert Insider(Draws("attack", 1)).attack()


def test_it_notices_a_subscriber_that_refuses_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    attacked = AttackedReader(Draws("attack", 1))
    monkeypatch.setattr(attacked, "_deliver", lambda peer, wire: [])
    with pytest.raises(AssertionError, match="refused a true publication"):
        attacked.attack()
