"""A month of interactions: keys that are renewed less often, counted by hand and in the figure."""

from __future__ import annotations

from itertools import pairwise

import pytest

from papers.experiments.draws import Draws
from papers.experiments.socialtrace import REFRESH_MESSAGES, SocialTrace, frame_bytes, play
from tests.papers.experiments.helpers import rows, silent, small


def test_figure_10_fewer_keys_save_shares_and_a_repository_saves_most():
    table = rows(small("10"), alpha=0.5)
    in_band = [float(row["GB"]) for row in table]
    assert in_band == sorted(in_band, reverse=True)
    assert table[0]["keys per interaction"] == 1
    assert 0.1 <= float(table[-1]["keys per interaction"]) < 0.9
    assert float(table[-1]["key a publisher: saved %"]) > float(table[-1]["saved %"]) > 10
    assert all(float(row["repository: GB"]) < float(row["GB"]) / 3 for row in table)


def test_a_trace_with_one_pair_of_friends_renews_its_key_exactly_every_m_messages():
    by_pair, by_publisher = play(Draws("pair"), silent, 100, 1, 1, 1, 5, 0.5)
    assert [by_pair.month(m).keys for m in (1, 3, 10)] == [100, 34, 10]
    assert by_publisher.month(7) == by_pair.month(7)
    assert by_pair.month(10).shares == 10 * 3


def test_a_trace_adds_up_what_each_renewal_costs():
    trace = SocialTrace()
    for number, hops in ((0, 0), (1, 1), (2, 2), (3, 3)):
        trace.add_interaction(number, hops)
    month = trace.month(2)
    assert (month.keys, month.shares, month.bytes) == (2, 3 + 27, frame_bytes(1) + frame_bytes(3))
    assert (trace.month(3).keys, trace.month(3).shares) == (2, 3 + 81)


@pytest.mark.parametrize("messages", REFRESH_MESSAGES)
def test_numbers_of_long_conversations_begin_anew_without_moving_a_renewal(messages: int):
    trace = SocialTrace()
    for number in range(6000):
        trace.add_interaction(number, 0)
    assert trace.month(messages).keys == -(-6000 // messages)


def test_frames_grow_by_the_replicas_of_each_node():
    sizes = [frame_bytes(nodes) for nodes in range(1, 7)]
    assert all(2.9 < after / before < 4.5 for before, after in pairwise(sizes[2:]))


def test_users_publish_by_zipf_and_progress_is_told():
    told: list[float] = []
    by_pair, by_publisher = play(Draws("month"), told.append, 20_000, 500, 19, 40, 5, 0.5)
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert by_pair.month(1).keys == by_publisher.month(1).keys == 20_000
    assert by_publisher.month(10).keys < by_pair.month(10).keys, "a publisher says more than it says to one friend"
