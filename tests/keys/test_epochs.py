"""keys.epochs: keys of scopes and epochs are independent of each other; calendars; what one party holds."""

import hashlib
import hmac
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import epochs
from keys.epochs import EPOCH_MAX, Calendar, KeyName, ScopeKeys, scope_key, token_key
from keys.errors import BadFrame, OurFault
from keys.frames import Reader
from keys.frames import text as framed

ROOT = bytes(range(32))


def test_keys_differ_by_root_scope_epoch_and_purpose() -> None:
    keys = [
        scope_key(ROOT, "a/#", 0),
        scope_key(ROOT, "a/#", 1),
        scope_key(ROOT, "b/#", 0),
        scope_key(ROOT, "a/#", 0, 1),
        scope_key(bytes(32), "a/#", 0),
        token_key(ROOT),
        token_key(ROOT, 1),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert scope_key(ROOT, "a/#", 0) == keys[0]


def test_no_two_pairs_of_scope_and_epoch_read_alike() -> None:
    """The end of a scope's name cannot pass as an epoch."""
    assert scope_key(ROOT, "a\0\0\0\1", 0) != scope_key(ROOT, "a", 1 << 24)
    assert scope_key(ROOT, "a\0", 1) != scope_key(ROOT, "a", 1)


def test_roots_and_epochs_that_cannot_be_are_our_fault() -> None:
    for root, epoch in ((b"short", 0), (ROOT, -1), (ROOT, 1 << 32)):
        with pytest.raises(OurFault):
            scope_key(root, "a/#", epoch)
    with pytest.raises(OurFault):
        token_key(ROOT, -1)


# ----------------------------------------------------------------------------------------------- calendars

CALENDAR = Calendar(5_000, 1000, ahead_s=100, grace_s=50, skew_s=10, history_epochs=2)
calendars = st.builds(
    Calendar,
    st.integers(0, 10**13),
    st.integers(400, 10**7),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 99),
    st.integers(0, 5),
)


def test_epochs_begin_end_and_overlap_as_the_calendar_says() -> None:
    assert (CALENDAR.start_s(3), CALENDAR.end_s(3), CALENDAR.fetch_from_s(3)) == (3005, 4005, 2905)
    assert [CALENDAR.epoch_at(now) for now in (0.0, 5.0, 1004.999, 1005.0, 3500.0)] == [0, 0, 0, 1, 3]
    assert (CALENDAR.last(3500.0), Calendar().last(3500.0)) == (4, 0)
    seals = [CALENDAR.may_seal(3, now) for now in (3004.9, 3005, 4004, 4054, 4055)]
    assert seals == [False, True, True, True, False]
    lives = [CALENDAR.live(3, now) for now in (2994.9, 2995, 4064, 4065)]
    assert lives == [False, True, True, False]


def test_without_epochs_there_is_one_that_never_ends() -> None:
    endless = Calendar()
    assert {endless.epoch_at(now) for now in (-1.0, 0.0, 1e12)} == {0}
    assert endless.end_s(0) == float("inf")
    assert endless.live(0, 1e12)
    assert not endless.live(1, 1e12)
    assert endless.may_seal(0, 1e12)
    assert not endless.may_seal(1, 1e12)


@settings(max_examples=200)
@given(calendars, st.integers(0, 10**6))
def test_an_epoch_has_begun_when_its_start_says_so(calendar: Calendar, epoch: int) -> None:
    """Whatever floats make of it: who waits for a start and asks again does not wait for ever."""
    assert calendar.epoch_at(calendar.start_s(epoch)) == epoch
    assert calendar.epoch_at(calendar.end_s(epoch)) == epoch + 1


@settings(max_examples=200)
@given(calendars, st.floats(0, 2e10), st.floats(-1, 1))
def test_what_one_may_seal_is_live_for_everybody(calendar: Calendar, now: float, apart: float) -> None:
    """A publisher within the grace and a replica whose clock differs by the skew agree."""
    for epoch in (calendar.epoch_at(now), max(0, calendar.epoch_at(now) - 1)):
        if calendar.may_seal(epoch, now) and now >= calendar.zero_ms / 1000:
            assert calendar.live(epoch, now + apart * calendar.skew_s * 0.999)


@settings(max_examples=60)
@given(calendars)
def test_a_calendar_comes_back_from_its_bytes(calendar: Calendar) -> None:
    reader = Reader(calendar.encode())
    assert Calendar.read(reader) == calendar
    reader.expect_end()


def test_times_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(OurFault, match="make it longer"):
        Calendar(0, 100, ahead_s=50, grace_s=30, skew_s=10)
    fits = Calendar(0, 101, ahead_s=50, grace_s=30, skew_s=10).encode()
    with pytest.raises(BadFrame):
        Calendar.read(Reader(fits[:8] + (100).to_bytes(4) + fits[12:]))
    assert Calendar(0, 1).epoch_at(1e30) == EPOCH_MAX


# ---------------------------------------------------------------------------------------- what a party holds

NAME = KeyName("a/#", 3, 1)


def test_a_key_is_put_once_and_never_changed_by_putting() -> None:
    keys = ScopeKeys()
    assert keys.put_key(NAME, ROOT)
    assert not keys.put_key(NAME, ROOT)
    with pytest.raises(OurFault, match="two keys"):
        keys.put_key(NAME, bytes(31) + b"\1")
    assert keys.get(NAME) == ROOT
    keys.replace(NAME, bytes(31) + b"\1")
    assert keys.get(NAME) == bytes(31) + b"\1"
    assert keys.get(NAME._replace(bump=0)) is None


def test_keys_that_are_none_are_refused_and_none_shows() -> None:
    keys = ScopeKeys()
    for bad in (b"", bytes(32), b"x" * 31, b"x" * 33):
        with pytest.raises(OurFault):
            keys.put_key(NAME, bad)
    keys.put_key(NAME, b"secret" * 5 + b"12")
    assert "secret" not in repr(keys)
    assert (len(keys), list(keys)) == (1, [(NAME, b"secret" * 5 + b"12")])


def test_a_publisher_seals_under_the_present_epoch_or_within_its_grace_the_one_before() -> None:
    keys = ScopeKeys()
    assert keys.to_seal("a/#", 0, CALENDAR, 4000.0) is None
    before, present = KeyName("a/#", 3, 0), KeyName("a/#", 4, 0)
    keys.put_key(before, ROOT)
    assert keys.to_seal("a/#", 0, CALENDAR, 4000.0) == (before, ROOT)
    assert keys.to_seal("a/#", 0, CALENDAR, 4010.0) == (before, ROOT)
    assert keys.to_seal("a/#", 0, CALENDAR, 4055.0) is None
    keys.put_key(present, b"\7" * 32)
    assert keys.to_seal("a/#", 0, CALENDAR, 4010.0) == (present, b"\7" * 32)
    assert keys.to_seal("a/#", 0, CALENDAR, 4000.0) == (before, ROOT)  # the next epoch's key waits for it


def test_nothing_is_sealed_under_a_key_of_an_earlier_bump() -> None:
    """Somebody was shut out: better wait than let it read."""
    keys = ScopeKeys()
    keys.put_key(KeyName("a/#", 3, 0), ROOT)
    assert keys.to_seal("a/#", 1, CALENDAR, 3500.0) is None
    assert keys.to_seal("a/#", 0, CALENDAR, 3500.0) is not None


def test_old_epochs_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ScopeKeys()
    for epoch in range(2, 5):
        keys.put_key(KeyName("a/#", epoch, 0), ROOT)
    monkeypatch.setattr(epochs, "SCOPE_KEYS_MAX", 3)
    keys.replace(KeyName("a/#", 4, 0), ROOT)
    assert len(keys) == 3
    keys.put_key(KeyName("a/#", 9, 0), ROOT)
    assert sorted(name.epoch for name, _ in keys) == [3, 4, 9]


@settings(max_examples=200)
@given(
    st.sampled_from([Calendar(), Calendar(7), Calendar(1_700_000_000_123, 60, 5, 10, 1), Calendar(500, 86_400)]),
    st.integers(0, 5),
    st.integers(-3, 3),
    st.integers(0, 1),
)
def test_when_a_publisher_may_seal_in_milliseconds(calendar: Calendar, epoch: int, near_ms: int, end: int) -> None:
    edge_s = calendar.end_s(epoch) + calendar.grace_s if end and calendar.length_s else calendar.start_s(epoch)
    time_ms = max(0, round(edge_s * 1000) + near_ms)
    begins_ms, ends_ms = calendar.sealing_ms(epoch)
    assert (begins_ms <= time_ms < ends_ms) is calendar.may_seal(epoch, (time_ms + 0.5) / 1000)


def test_keys_are_derived_as_the_protocol_says() -> None:
    for made, info in (
        (scope_key(ROOT, "a/#", 7, 2), b"veilmq/1 scope" + framed("a/#") + (7).to_bytes(4) + (2).to_bytes(2)),
        (token_key(ROOT, 3), b"veilmq/1 tokens" + (3).to_bytes(4)),
    ):
        assert made == hmac.digest(ROOT, info + b"\1", hashlib.sha256)  # HKDF-Expand to 32 bytes (RFC 5869 §2.3)


def test_a_calendar_is_one_endless_epoch_unless_it_says_more() -> None:
    assert Calendar() == Calendar(0, 0, 0, 0, 0, 0)


def test_the_first_epoch_may_seal_what_is_older_than_all_epochs() -> None:
    assert CALENDAR.sealing_ms(0) == (0, 5_000 + 1_050_000)
    assert CALENDAR.sealing_ms(1) == (1_005_000, 5_000 + 2_050_000)


@pytest.mark.parametrize(
    ("zero_ms", "length_s", "epoch"), [(4993, 10, 102), (1987, 7, 73), (2742, 10, 1), (9738, 10, 92)]
)
def test_a_quotient_that_is_rounded_does_not_move_an_epoch(zero_ms: int, length_s: int, epoch: int) -> None:
    """Of the first two the quotient is too small at the start, of the others too big just before."""
    calendar = Calendar(zero_ms, length_s)
    start = calendar.start_s(epoch)
    assert (calendar.epoch_at(math.nextafter(start, 0)), calendar.epoch_at(start)) == (epoch - 1, epoch)
