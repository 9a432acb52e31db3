"""Payloads from arguments, files and lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gateway.terminal import TerminalError, from_arguments, from_lines, payload_of
from gateway.terminal.messages import LINE_BYTES_MAX, checked_topic
from tests.gateway.harness import on_loop


def test_a_payload_is_text_a_file_or_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    nothing = io.BytesIO()
    assert payload_of("grün", None, nothing) == "grün".encode()
    assert payload_of("", None, nothing) == b""
    assert payload_of(None, file, nothing) == b"\x00\xff"
    assert payload_of(None, Path("-"), io.BytesIO(b"in")) == b"in"
    for text, path, said in (
        (None, None, "say the payload"), ("a", file, "say the payload"), (None, tmp_path / "no", "No such file"),
    ):  # fmt: skip
        with pytest.raises(TerminalError, match=said):
            payload_of(text, path, nothing)


@pytest.mark.parametrize("topic", ["", "a/#", "+/a", "a" * 70_000, "a\0b"])
def test_what_is_no_topic_is_said_before_anything_is_sent(topic: str) -> None:
    with pytest.raises(TerminalError, match="is no topic to publish to"):
        checked_topic(topic)


@on_loop
async def test_a_message_for_each_line_or_repetition() -> None:
    lines = [message.payload async for message in from_lines("t", io.BytesIO(b"a\r\nb\n\nlast"), 1, False)]
    assert lines == [b"a", b"b", b"", b"last"]
    assert len([message async for message in from_arguments("t", b"x", 2, True, times=3)]) == 3


@on_loop
async def test_a_line_without_end_does_not_fill_memory() -> None:
    class Endless(io.RawIOBase):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size == LINE_BYTES_MAX
            return b"x" * LINE_BYTES_MAX

    with pytest.raises(TerminalError, match="--file"):
        [message async for message in from_lines("t", Endless(), 1, False)]  # type: ignore[arg-type]
