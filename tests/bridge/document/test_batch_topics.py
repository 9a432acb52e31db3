"""Where batches travel: on a topic that names their scope by its number, and has one spelling."""

from __future__ import annotations

import pytest

from bridge.document import batch_number, batch_topic, is_batch_topic


@pytest.mark.parametrize("number", [1, 7, 4_294_967_295])
def test_the_topic_of_batches_names_the_scope_by_its_number(number: int) -> None:
    topic = batch_topic(number)
    assert is_batch_topic(topic)
    assert batch_number(topic) == number


@pytest.mark.parametrize("told", ["0", "01", "-1", "1/", "1/a", "", "+", "4294967296", "\u0661", "1 ", "99999999999"])
def test_a_number_has_one_spelling(told: str) -> None:
    assert is_batch_topic(f"veilmq/batch/{told}")
    assert batch_number(f"veilmq/batch/{told}") is None


def test_other_topics_are_none_of_batches() -> None:
    assert not is_batch_topic("plant/veilmq/batch/1")
    assert batch_number("plant/1") is None
