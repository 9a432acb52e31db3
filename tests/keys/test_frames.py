"""keys.frames: one spelling for one frame, also as a user property."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import frames
from keys.errors import BadFrame, OurFault


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_a_frame_survives_a_user_property(data: bytes) -> None:
    value = frames.to_property(data)
    assert "=" not in value
    assert frames.from_property(value) == data


@settings(max_examples=100)
@given(st.text(alphabet="AQgw-_+/=\n é9", max_size=8))
def test_a_property_has_one_spelling_or_is_refused(value: str) -> None:
    try:
        data = frames.from_property(value)
    except BadFrame:
        return
    assert frames.to_property(data) == value


@pytest.mark.parametrize(
    "value", ["QQ==", "QR", "Q", "QUI+", "QUI/", "QU I", "QUI\n", "é", "\ud800", "QQ=", "QX", "QUX", "A" * 65_536]
)
def test_other_spellings_are_refused(value: str) -> None:
    with pytest.raises(BadFrame):
        frames.from_property(value)


def test_a_frame_that_no_property_can_hold_is_our_fault() -> None:
    assert len(frames.to_property(bytes(49_151))) == 65_535
    with pytest.raises(OurFault):
        frames.to_property(bytes(49_152))


def test_numbers_and_strings_that_do_not_fit_are_our_fault() -> None:
    for value, size in ((-1, 4), (256, 1), (1 << 64, 8)):
        with pytest.raises(OurFault):
            frames.number(value, size)
    with pytest.raises(OurFault):
        frames.sized(bytes(65_536))
    with pytest.raises(OurFault):
        frames.text("\ud800")


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadFrame):
        frames.Reader(b"\0\2\xc3\x28").text()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_whatever_a_frame_ends_with_survives_a_user_property(size: int) -> None:
    for last in range(256):
        data = bytes(size - 1) + bytes([last])
        assert frames.from_property(frames.to_property(data)) == data


def test_the_longest_strings_and_properties_are_read() -> None:
    longest = bytes(65_535)
    assert frames.Reader(frames.sized(longest)).sized() == longest
    whole = bytes(49_151)
    assert frames.from_property(frames.to_property(whole)) == whole


def test_what_is_left_is_read_once() -> None:
    reader = frames.Reader(b"abc")
    assert (reader.take_bytes(1), reader.take_rest(), reader.take_rest()) == (b"a", b"bc", b"")
    reader.expect_end()
    with pytest.raises(BadFrame):
        reader.take_bytes(1)


def test_kinds_and_properties_are_those_of_the_protocol() -> None:
    assert {kind.name: kind.value for kind in frames.Kind} == {
        "SHARES": 1, "KEY_HEADER": 2, "MESSAGE_HEADER": 3, "CERTIFICATE": 6, "VIEW": 7, "POLICY": 8,
        "SCOPE": 9, "STATEMENT": 10, "GRANT": 11, "SEALED_GRANT": 12, "KEY_REQUEST": 13, "KEY_ANSWER": 14,
        "OVERLAY_OFFER": 15, "KEY_OUTPUTS": 16, "KEY_ARCHIVE": 17, "KEY_MATERIAL": 18, "GROUP_LEASE": 19, "PULL": 20,
        "ENDORSEMENT": 21, "OWN_WORD": 22, "ADVERTISEMENT": 24, "TOKEN": 25, "TRACE": 26, "TRACE_KEY": 27,
        "REGISTRATION": 28, "REGISTERED": 29, "TRACE_SESSION": 30, "INTEREST": 31, "DISCOVERY": 32, "SUMMARY": 34,
        "INTEREST_FILTER": 35, "SHOWN": 36, "KNOCK": 37, "RESUMED": 38, "SWAP": 39,
        "SWAP_ENDORSEMENT": 40, "SWAP_NEWS": 41, "PRESENCE": 42, "HISTORY_REQUEST": 43, "HISTORY_PAGE": 44, "WRAPS": 45,
        "RECEIPT": 46, "FAR_REQUEST": 47, "FAR_PAGE": 48,
    }  # fmt: skip
    assert (frames.PROPERTY_HEADER, frames.PROPERTY_KEY, frames.PROPERTY_SHARES) == ("vmq", "vmq-key", "vmq-shares")
    assert frames.PROPERTY_WRAPS == "vmq-wraps"


def test_an_opening_is_version_kind_and_flags() -> None:
    assert frames.opening(frames.Kind.TOKEN) == b"\1\x19\0"
    assert frames.opening(frames.Kind.TOKEN, 5) == b"\1\x19\5"
    reader = frames.Reader(b"\1\x19\5rest")
    assert reader.opening(frames.Kind.TOKEN, 7) == 5
    assert (reader.position, reader.take_rest()) == (3, b"rest")
    assert frames.Reader(b"\1\x19\0").opening(frames.Kind.TOKEN) == 0


@pytest.mark.parametrize("data", [b"\0\x19\0", b"\2\x19\0", b"\1\x1a\0", b"\1\x19\1", b"\1\x19\x80", b"\1\x19", b""])
def test_another_version_kind_or_flag_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.Reader(data).opening(frames.Kind.TOKEN)


def test_a_flag_beside_known_ones_and_a_byte_too_many_are_refused() -> None:
    with pytest.raises(BadFrame):
        frames.Reader(b"\1\x19\x0d").opening(frames.Kind.TOKEN, 7)
    reader = frames.Reader(b"\1\x19\0+")
    reader.opening(frames.Kind.TOKEN)
    with pytest.raises(BadFrame, match="1 trailing"):
        reader.expect_end()
