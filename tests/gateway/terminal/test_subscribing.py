"""Subscribing at a terminal: what is written is acknowledged, what is not written comes again."""

from __future__ import annotations

import io

import pytest

from gateway.mqtt5.packets import Publish, Version
from gateway.terminal import Server, SubscribeOptions, TerminalError, from_arguments, publish, subscribe
from tests.gateway.harness import on_loop, serving


@on_loop
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
async def test_it_ends_after_the_number_of_messages_that_was_asked_for(version: Version) -> None:
    async with serving() as broker:
        server = Server(port=broker.port(), version=version)
        for payload in (b"1", b"2", b"3"):
            await publish(server, from_arguments(f"t/{payload.decode()}", payload, 1, True), 20.0)
        out = io.BytesIO()
        assert await subscribe(server, SubscribeOptions(["t/#"], count=2), out) == 2
        assert out.getvalue().count(b"\n") == 2
        assert await subscribe(server, SubscribeOptions(["none/+", "no/#"], seconds=0.05), out) == 0


@on_loop
async def test_a_kept_session_brings_what_was_not_written() -> None:
    async with serving() as broker:
        server = Server(port=broker.port(), client_id="c", session_s=60)
        wanted = SubscribeOptions(["t"], count=1)
        await subscribe(server, SubscribeOptions(["t"], seconds=0.05), io.BytesIO())

        async def numbers() -> object:
            for number in range(3):
                yield Publish("t", b"%d" % number, 1)

        await publish(Server(port=broker.port()), numbers(), 20.0)  # type: ignore[arg-type]
        got = []
        for _ in range(3):
            out = io.BytesIO()
            await subscribe(server, wanted, out)
            got.append(out.getvalue())
        assert got == [b"t 0\n", b"t 1\n", b"t 2\n"]


@on_loop
async def test_a_filter_that_is_none_is_said_before_connecting() -> None:
    with pytest.raises(TerminalError, match="correct the filter"):
        await subscribe(Server(port=1), SubscribeOptions(["a/#/b"]), io.BytesIO())


@on_loop
async def test_a_refused_subscription_is_one_line_with_its_reason_code() -> None:
    async with serving({"limits": {"subscriptions": 1}}) as broker:
        with pytest.raises(TerminalError, match=r"refused the subscription to b.* \(0x97\); ") as seen:
            await subscribe(Server(port=broker.port()), SubscribeOptions(["a", "b"]), io.BytesIO())
        assert "\n" not in str(seen.value)


@on_loop
async def test_an_output_that_takes_nothing_ends_it() -> None:
    class Full(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(28, "No space left on device")

    async with serving() as broker:
        server = Server(port=broker.port())
        await publish(server, from_arguments("t", b"x", 1, True), 20.0)
        with pytest.raises(OSError, match="No space"):
            await subscribe(server, SubscribeOptions(["t"]), Full())
