"""Requests to a provider that is slow, endless, elsewhere, or speaks in clear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.auth import provider_fetch
from gateway.auth.provider_fetch import FetchError, ProviderFetch, check_address
from gateway.base import StartError
from tests.gateway.harness import on_loop

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """An address whose server reads a request and then answers as it likes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/keys?secret=hidden"
    finally:
        listening.close()


async def failure(answer: Answer) -> str:
    async with server(answer) as url:
        with pytest.raises(FetchError) as caught:
            await ProviderFetch().get_content(url)
    assert "hidden" not in str(caught.value)
    return str(caught.value)


@on_loop
async def test_an_answer_as_it_should_be() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 2\r\n\r\n{}")

    async with server(answer) as url:
        assert await ProviderFetch().get_content(url) == b"{}"


async def _trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Length: 9999\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _slow_header(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [_trickle, _slow_header, _silence])
@on_loop
async def test_a_provider_that_takes_its_time_is_given_up(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_fetch, "FETCH_S", 0.2)
    assert "no whole answer within 0.2 s" in await failure(answer)


@on_loop
async def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_fetch, "ANSWER_BYTES_MAX", 100_000)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()

    assert "more than 100000 bytes" in await failure(answer)


@on_loop
async def test_no_redirect_is_followed() -> None:
    asked: list[bool] = []

    async def inside(writer: asyncio.StreamWriter) -> None:
        asked.append(True)
        writer.write(OK + b"Content-Length: 2\r\n\r\n{}")

    async with server(inside) as target:

        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())

        assert "HTTP status 302" in await failure(answer)
    assert not asked


@on_loop
async def test_nobody_is_there() -> None:
    with pytest.raises(FetchError):
        await ProviderFetch().get_content("http://127.0.0.1:9/keys")


def test_addresses_that_are_refused() -> None:
    for good in ("https://login.example.net/a", "http://localhost:3000/a", "http://127.0.0.1/a", "http://[::1]:8/a"):
        check_address(good, "x")
    for wrong in ("http://login.example.net/a", "file:///etc/passwd", "ftp://x/", "", "https://", "https://u:p@h/",
                  "https://h:99999/", "gopher://127.0.0.1/"):  # fmt: skip
        with pytest.raises(StartError):
            check_address(wrong, "x")
