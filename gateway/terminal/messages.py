"""Messages of `veilmq pub`: from arguments, a file, or lines of standard input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from gateway.mqtt5.packets import NO_PROPERTIES, Properties, Publish
from gateway.mqtt5.types import MAXIMUM_REMAINING_LENGTH, MalformedPacket, check_topic_name
from gateway.terminal.server import TerminalError

LINE_BYTES_MAX = 16 << 20
"""The longest line of standard input: a file without line ends does not fill memory."""


def payload_of(text: str | None, file: Path | None, standard_input: BinaryIO) -> bytes:
    """Returns the payload that the arguments name; `-` as file is standard input. Raises TerminalError."""
    if (text is None) == (file is None):
        raise TerminalError("say the payload, or a file with --file FILE, or --lines; an empty payload is ''")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert file is not None
    try:
        with standard_input if str(file) == "-" else file.open("rb") as source:
            content = source.read(MAXIMUM_REMAINING_LENGTH + 1)
    except OSError as error:
        raise TerminalError(f"{file}: {error.strerror}; correct the path or its permissions") from None
    if len(content) > MAXIMUM_REMAINING_LENGTH:
        raise TerminalError(f"{file}: more than the 256 MiB that MQTT can carry; split it")
    return content


def checked_topic(topic: str) -> str:
    """Returns the topic if it may be published to. Raises TerminalError."""
    try:
        return check_topic_name(topic)
    except MalformedPacket as error:
        raise TerminalError(f"{topic!r} is no topic to publish to: {error}; correct it") from None


async def from_arguments(
    topic: str, payload: bytes, qos: int, retain: bool, properties: Properties = NO_PROPERTIES,
    times: int = 1, every_s: float = 0.0,
) -> AsyncIterator[Publish]:  # fmt: skip
    """Yields a message `times` times, `every_s` seconds apart."""
    for number in range(times):
        if number and every_s:
            await asyncio.sleep(every_s)
        yield Publish(topic, payload, qos, retain, properties=properties)


async def from_lines(
    topic: str, source: BinaryIO, qos: int, retain: bool, properties: Properties = NO_PROPERTIES
) -> AsyncIterator[Publish]:
    """Yields a message for each line, without the line's end. Raises TerminalError for a line that is too long."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, source.readline, LINE_BYTES_MAX):
        if len(line) >= LINE_BYTES_MAX:
            raise TerminalError(f"a line has more than {LINE_BYTES_MAX >> 20} MiB; send it with --file")
        yield Publish(topic, line.rstrip(b"\r\n"), qos, retain, properties=properties)
