"""The HTTP server of API and page: who asks, whether that is allowed, what is answered when it is not.

A browser is recognised by a cookie that scripts cannot read and other sites cannot send; whatever changes something
needs a header besides that no other site can add. A program shows a token. Every answer forbids frames, foreign scripts
and guessing of types. What the operations do is in `answering`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from gateway.auth.api_tokens import ApiTokens
from gateway.base import Stamps, StartError
from gateway.base.config_console import Console
from gateway.base.log_events import LogEvent
from gateway.console.answering import Answering
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.logins import Logins, TooManyError
from gateway.console.operations import ADMIN, ANYBODY, API, CHANGE, OPERATIONS, ApiOperation, checked

log = logging.getLogger("veilmq.console")

BODY_BYTES_MAX = 1 << 20
LOOK_EVERY_S = 2.0
COOKIE = "veilmq"
ASKED_BY = "X-Requested-By"
STATIC = Path(__file__).parent / "static"
PAGES = {"/": ("page.html", "text/html"), "/page.js": ("page.js", "text/javascript"),
         "/page.css": ("page.css", "text/css")}  # fmt: skip
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleServer:
    """One process's. `start`, then `stop`."""

    def __init__(self, settings: Console, logins: Logins, tokens: ApiTokens, answering: Answering) -> None:
        self._settings, self._logins, self._tokens, self._answering = settings, logins, tokens, answering
        self._runner: web.AppRunner | None = None
        self._looking: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises StartError if the port or the certificate cannot be had."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_guarded])
        for path, (file, kind) in PAGES.items():
            app.router.add_get(path, _page(file, kind))
        for one in OPERATIONS:
            app.router.add_route(one.method, API + one.path, self._handler(one))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        host, _, port = self._settings.bind.rpartition(":")
        try:
            context = self._tls()
            site = web.TCPSite(self._runner, host.strip("[]"), int(port), ssl_context=context)
            await site.start()
        except (OSError, ssl.SSLError) as error:
            await self._runner.cleanup()
            raise StartError(
                f"console: cannot serve at {self._settings.bind}: {error}; correct bind or files"
            ) from None
        self.port = int(self._runner.addresses[0][1])
        scheme = "https" if self._settings.certfile else "http"
        LogEvent.CONSOLE_SERVED.say(log, scheme, host, self.port)
        if context is not None:
            self._looking = asyncio.get_running_loop().create_task(self._renew(context), name="console certificate")

    def _tls(self) -> ssl.SSLContext | None:
        if self._settings.certfile is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._settings.certfile, self._settings.keyfile)
        return context

    async def _renew(self, context: ssl.SSLContext) -> None:
        """A certificate that somebody replaced is shown from the next handshake on."""
        files = [path for path in (self._settings.certfile, self._settings.keyfile) if path is not None]
        stamps = Stamps(files)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not stamps.changed():
                continue
            try:
                self._tls()  # a pair that does not fit would leave the context half changed
                context.load_cert_chain(files[0], files[-1])
            except (OSError, ssl.SSLError) as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, "console", error)
            else:
                LogEvent.CERTIFICATE_RENEWED.say(log, "console", files[0])

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._answering.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------- requests

    def _handler(self, one: ApiOperation) -> Handler:
        act = self._answering.act(one.name) if one.name not in ("login", "logout") else None

        async def handle(request: web.Request) -> web.StreamResponse:
            now, address = time.time(), request.remote or ""
            try:
                self._logins.check_address(address, now)
                if request.method not in ("GET", "HEAD") and ASKED_BY not in request.headers:
                    raise ApiError(403, f"a request that changes something needs the header {ASKED_BY}, with any value")
                if one.name == "login":
                    return await self._login(request, await self._body(one, request), now)
                user = None if one.who == ANYBODY else self._user(request, address, now)
                self._allow(one, user)
                if act is None:
                    return self._logout(request)
                body = await self._body(one, request)
                id_, goes_on = request.match_info.get("id", ""), partial(self._goes_on, request)
                asked = ApiRequest(user or "", address, id_, request.query, body, request, goes_on)
                answer = await act(asked)
            except TooManyError:
                return _error(429, "too many wrong attempts from this address; wait a minute")
            except ApiError as error:
                return _error(error.status, str(error))
            if isinstance(answer, web.StreamResponse):
                return answer
            return web.json_response(answer)

        return handle

    async def _body(self, one: ApiOperation, request: web.Request) -> dict[str, Any]:
        if request.method in ("GET", "HEAD"):
            return {}
        data = await request.read()
        if not data and not one.needed:
            return {}
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body is no JSON") from None
        try:
            return checked(one, content)
        except ValueError as error:
            raise ApiError(400, str(error)) from None

    def _user(self, request: web.Request, address: str, now: float) -> str:
        kind, secret = _shown(request)
        user = None
        if kind == "bearer":
            user = self._tokens.user_of(secret, now)
        elif cookie := request.cookies.get(COOKIE):
            user = self._logins.user_of_login(cookie, now)
            if user is None:
                raise ApiError(401, "the login is over; log in again")
        if user is None:
            if kind:
                self._logins.failed(address, now)
            raise ApiError(401, "log in, or show a token")
        return user

    def _goes_on(self, request: web.Request) -> bool:
        kind, secret = _shown(request)
        if kind == "bearer":
            return self._tokens.user_of(secret, time.time()) is not None
        return self._logins.is_on(request.cookies.get(COOKIE, ""), time.time())

    def _allow(self, one: ApiOperation, user: str | None) -> None:
        if one.who in (ADMIN, CHANGE) and user not in self._settings.admins:
            raise ApiError(403, "only for users that console.admins names")
        if one.who == CHANGE and not self._settings.write:
            raise ApiError(403, "this console is read-only; console.write: true lets admins change things")

    async def _login(self, request: web.Request, body: dict[str, Any], now: float) -> web.Response:
        address = request.remote or ""
        user = body["user"]
        if not await self._answering.authenticate(user, body["password"], address):
            self._logins.failed(address, now)
            LogEvent.CONSOLE_LOGIN_FAILED.say(log, user=user, address=address)
            raise ApiError(401, "user or password is wrong")
        LogEvent.CONSOLE_LOGIN.say(log, user=user, address=address)
        response = web.json_response({"user": user})
        response.set_cookie(
            COOKIE, self._logins.begin(user, now), httponly=True, samesite="Strict", secure=request.secure, path="/"
        )
        return response

    def _logout(self, request: web.Request) -> web.Response:
        self._logins.end(request.cookies.get(COOKIE, ""))
        response = web.json_response({})
        response.del_cookie(COOKIE, path="/")
        return response


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Headers of every answer; what nobody foresaw is one line in the log and says nothing of the inside."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = _error(error.status, error.reason)
    except asyncio.CancelledError:
        raise
    except Exception:  # noqa: BLE001  the log has its traceback
        LogEvent.CONSOLE_FAILED.say(log, exc_info=True)
        response = _error(500, "failed; see the log")
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def _shown(request: web.Request) -> tuple[str, str]:
    """How a program says who it is, in small letters, and the secret; both empty for a browser."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return kind.lower(), secret.strip()


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _page(file: str, kind: str) -> Handler:
    content = (STATIC / file).read_text("utf-8")

    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text=content, content_type=kind)

    return page
