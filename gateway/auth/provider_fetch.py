"""Requests to an identity provider over HTTP: bounded in time and bytes, to addresses of the configuration alone.

No redirect is followed, and nothing goes in clear to another machine. Imports aiohttp, so that only who has a
provider at an address imports this module.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from gateway.base import StartError
from gateway.base.limits import is_loopback

FETCH_S = 10.0
"""Seconds from the beginning of a request to the end of its answer: stops a provider that trickles."""
ANSWER_BYTES_MAX = 1 << 20
"""Stops an endless answer. A key is about 500 bytes."""


class FetchError(Exception):
    """An error of a request, in a line that holds no secret."""


def check_address(url: str, what: str) -> None:
    """Raises StartError for an address that is none, or to which tokens and keys would go in clear."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, parts, port = "", urlsplit(""), None
    if not host or parts.scheme not in ("https", "http") or parts.username is not None or parts.fragment:
        raise StartError(f"{what}: {url} is no address; write https://HOST/...")
    if parts.scheme == "http" and not is_loopback(f"{host}:{port or 80}"):
        raise StartError(f"{what}: {url} would cross the network in clear; write https")


class ProviderFetch:
    """Requests of one process. `cafile`: the authority that signed the provider's certificate; None: those of the
    system. Raises StartError if it cannot be read.
    """

    def __init__(self, cafile: Path | None = None) -> None:
        try:
            self._tls = ssl.create_default_context(cafile=None if cafile is None else str(cafile))
        except OSError as error:
            raise StartError(f"plugins: cafile {cafile}: {error.strerror or error}; name a PEM file") from None

    async def get_content(self, url: str) -> bytes:
        """Returns the content of an address. Raises FetchError."""
        return await self._send_request("GET", url)

    async def post(self, url: str, form: Mapping[str, str], login: tuple[str, str] | None = None) -> bytes:
        """Returns the answer to a form. `login`: name and password (RFC 6749 §2.3.1). Raises FetchError."""
        return await self._send_request("POST", url, form, None if login is None else aiohttp.BasicAuth(*login))

    async def _send_request(
        self, method: str, url: str, form: Mapping[str, str] | None = None, login: aiohttp.BasicAuth | None = None
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=FETCH_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(
                    method, url, data=form, auth=login, ssl=self._tls, allow_redirects=False,
                    headers={"Accept": "application/json"},
                ) as answer,
            ):  # fmt: skip
                if answer.status != 200:
                    raise FetchError(f"{_without_query(url)}: HTTP status {answer.status}")
                found = bytearray()
                async for part in answer.content.iter_chunked(65_536):
                    found += part
                    if len(found) > ANSWER_BYTES_MAX:
                        raise FetchError(f"{_without_query(url)}: answers with more than {ANSWER_BYTES_MAX} bytes")
                return bytes(found)
        except TimeoutError:
            raise FetchError(f"{_without_query(url)}: no whole answer within {FETCH_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or type(error).__name__
            raise FetchError(f"{_without_query(url)}: {said}") from None


def _without_query(url: str) -> str:
    return url.partition("?")[0]
