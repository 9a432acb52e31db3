"""`history` of the configuration: bounds as the owner's policy has them, and filters that can be kept."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from bridge.document import History
from gateway.base.config_history import HistorySettings, check_apart


def test_days_and_gigabytes_are_those_of_a_policy() -> None:
    assert HistorySettings(filter="plant/#", days=7, gigabytes=0.5).bounds == History(7, 500)


@pytest.mark.parametrize("topic_filter", ["a/#/b", "$SYS/#", "$share/g/a", ""])
def test_filters_that_name_no_local_topics_are_refused(topic_filter: str) -> None:
    with pytest.raises(ValidationError):
        HistorySettings(filter=topic_filter, days=1, gigabytes=1)


def test_a_topic_has_one_history() -> None:
    of = [HistorySettings(filter=name, days=1, gigabytes=1) for name in ("plant/+/a", "yard/#", "plant/1/#")]
    check_apart(of[:2])
    with pytest.raises(ValueError, match="plant/\\+/a and plant/1/#"):
        check_apart(of)
