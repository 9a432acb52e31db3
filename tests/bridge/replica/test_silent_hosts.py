"""Words of replicas that serve another one's plane: they wait until that one was silent for long enough."""

from __future__ import annotations

from bridge.replica.silent_hosts import SILENT_S, WORDS_MAX, SilentHosts

ONE, TWO = b"1" * 16, b"2" * 16


def test_a_word_counts_when_the_host_brought_nothing_for_long_enough_since() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    assert hosts.next_deadline is None
    hosts.said("r1b", ONE, "first", 10.0)
    hosts.said("r1b", ONE, "second", 10.3)
    assert hosts.next_deadline == 10.0 + SILENT_S
    assert hosts.take_due_words(10.0 + SILENT_S - 0.01) == []
    assert not hosts.is_silent("r1b", 10.4)
    assert hosts.take_due_words(10.0 + SILENT_S) == ["first", "second"]
    assert hosts.take_due_words(11.0) == []
    assert hosts.is_silent("r1b", 11.0), "until it brings something"
    assert hosts.next_deadline is None


def test_a_host_that_brings_something_is_not_silent_and_words_for_it_count_no_more() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    hosts.said("r1b", ONE, "of b", 10.0)
    hosts.said("r1c", ONE, "of c", 10.1)
    hosts.brought("r1b")
    assert hosts.take_due_words(11.0) == ["of c"]
    hosts.said("r1b", ONE, "of b", 12.0)
    assert not hosts.is_silent("r1b", 12.4)
    hosts.brought("r1c")
    assert not hosts.is_silent("r1c", 13.0)
    hosts.forget_words()
    assert hosts.take_due_words(14.0) == []


def test_a_publisher_with_many_gaps_loses_its_own_words_first() -> None:
    hosts: SilentHosts[str] = SilentHosts()
    hosts.said("r1b", TWO, "of two", 10.0)
    for number in range(2 * WORDS_MAX):
        hosts.said("r1b", ONE, str(number), 10.1)
    assert len(hosts) == WORDS_MAX
    found = hosts.take_due_words(11.0)
    assert found[0] == "of two"
    assert found[-1] == str(2 * WORDS_MAX - 1)
