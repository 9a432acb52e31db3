"""HTTP server of API and page: identification of the user, rights, and refusals.

A browser is identified by a cookie that scripts cannot read and other sites cannot send; a change also needs a header
no other site can add. A program shows a token. A request that names another host, or comes from a page of another
site, is refused. Every answer forbids frames, foreign scripts and guessing of types. The operations are in
`answering`.

Names under which a console answers. Browsers send the requested name, and the page that caused the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.auth.api_tokens import ApiTokens
from gateway.auth.oidc import OidcPlugin
from gateway.base import Stamps, StartError
from gateway.base.config_console import Console
from gateway.base.log_events import LogEvent
from gateway.console.answering import Answering
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.code_flow import BACK, BEGIN, FLOW_S, FlowError
from gateway.console.door import HEADER_S, ConsoleDoor
from gateway.console.guesses import Guesses, TooManyError
from gateway.console.logins import ConsoleUser, Logins
from gateway.console.operations import ADMIN, ANYBODY, API, CHANGE, OPERATIONS, ApiOperation, checked

if TYPE_CHECKING:
    from gateway.console.provider_login import ProviderLogin
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from cryptography import x509

HERE = "localhost"


def names_of(certificate: Path) -> frozenset[str]:
    """Returns the DNS names of the first certificate of a PEM file. Raises OSError, ValueError."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))


class Hosts:
    """Names of a console. `configured`: the setting of that name; `certified`: of the certificate, set anew with it."""

    def __init__(self, configured: Iterable[str]) -> None:
        self._configured = frozenset(name.lower() for name in configured)
        self.certified: frozenset[str] = frozenset()

    def knows_host(self, host: str) -> bool:
        """Returns True if a Host header (RFC 9110, section 7.2) names this console."""
        name = _name(f"//{host}")
        if name is None:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name == HERE or self._is_named(name)
        return True

    def may_ask(self, origin: str, host: str) -> bool:
        """Returns True if a page of this Origin (RFC 6454) is the console's own: from the requested host, or, where a
        proxy uses another name, from one of the console's names.
        """
        name, scheme = _name(origin), origin.partition("://")[0].lower()
        if name is None or scheme not in ("http", "https"):
            return False
        return origin.partition("://")[2].lower() == host.lower() or self._is_named(name)

    def _is_named(self, name: str) -> bool:
        known = self._configured | self.certified
        return name in known or f"*.{name.partition('.')[2]}" in known


def _name(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname if not (parts.path or parts.query or parts.username) else None


log = logging.getLogger("veilmq.console")

BODY_BYTES_MAX, BODY_S = 1 << 20, 10.0
LOOK_EVERY_S = 2.0
COOKIE, FLOW_COOKIE = "veilmq", "veilmq-flow"
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
    """Server of a process. Call `start`, then `stop`."""

    def __init__(
        self, settings: Console, logins: Logins, tokens: ApiTokens, answering: Answering,
        oidc: OidcPlugin | None = None, provider: ProviderLogin | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._logins, self._tokens, self._answering = settings, logins, tokens, answering
        self._oidc, self._provider = oidc, provider
        self._guesses, self._hosts = Guesses(), Hosts(settings.hosts)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._door: ConsoleDoor | None = None
        self._looking: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Starts the server. Raises StartError if the port or the certificate is not available."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._guarded])
        for path, (file, kind) in PAGES.items():
            app.router.add_get(path, _page(file, kind))
        if self._provider is not None:
            app.router.add_get(BEGIN, self._to_provider)
            app.router.add_get(BACK, self._from_provider)
        for one in OPERATIONS:
            app.router.add_route(one.method, API + one.path, self._handler(one))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        host, _, port = self._settings.bind.rpartition(":")
        try:
            context = self._tls()
            assert self._runner.server is not None
            self._door = ConsoleDoor(self._runner.server)
            self._server = await asyncio.get_running_loop().create_server(
                self._door,
                host.strip("[]"),
                int(port),
                ssl=context,
                ssl_handshake_timeout=None if context is None else HEADER_S,
            )
        except (OSError, ssl.SSLError, ValueError) as error:
            await self._runner.cleanup()
            raise StartError(
                f"console: cannot serve at {self._settings.bind}: {error}; correct bind or files"
            ) from None
        self.port = int(self._server.sockets[0].getsockname()[1])
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
        self._hosts.certified = names_of(self._settings.certfile)
        return context

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Watches the certificate: a replaced one is shown from the next handshake on."""
        files = [path for path in (self._settings.certfile, self._settings.keyfile) if path is not None]
        stamps = Stamps(files)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not stamps.have_changed():
                continue
            try:
                self._tls()  # a pair that does not fit would leave the context half changed
                context.load_cert_chain(files[0], files[-1])
            except (OSError, ssl.SSLError, ValueError) as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, "console", error)
            else:
                LogEvent.CERTIFICATE_RENEWED.say(log, "console", files[0])

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._answering.stop()
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------- requests

    def _handler(self, one: ApiOperation) -> Handler:
        act = self._answering.act(one.name) if one.name not in ("login", "logout", "ways") else None

        async def handle(request: web.Request) -> web.StreamResponse:
            now, address = time.time(), request.remote or ""
            try:
                if request.method not in ("GET", "HEAD") and ASKED_BY not in request.headers:
                    raise ApiError(403, f"a request that changes something needs the header {ASKED_BY}, with any value")
                if one.name == "login":
                    return await self._login(request, await self._body(one, request), now)
                if one.name == "ways":
                    return web.json_response(self._ways())
                user = None if one.who == ANYBODY else await self._user(request, address, now)
                self._allow(one, user)
                if act is None:
                    return self._logout(request)
                body = await self._body(one, request)
                id_, goes_on = request.match_info.get("id", ""), partial(self._goes_on, request)
                name, groups = (user.name, user.groups) if user is not None else ("", None)
                asked = ApiRequest(name, address, id_, request.query, body, request, goes_on, groups)
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
        try:
            async with asyncio.timeout(BODY_S):
                data = await request.read()
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_S:g} s") from None
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

    async def _user(self, request: web.Request, address: str, now: float) -> ConsoleUser:
        """Returns the user of a request. Raises ApiError, and TooManyError for a wrong token of an address block with
        too many guesses.
        """
        kind, secret = _shown(request)
        user = None
        if kind == "bearer":
            user = self._bearer(secret, now)
        elif cookie := request.cookies.get(COOKIE):
            user = self._logins.user_of_login(cookie, now)
            if user is None:
                raise ApiError(401, "the login is over; log in again")
        if user is None:
            if kind:
                self._guesses.count_guess(address, now)
            raise ApiError(401, "log in, or show a token")
        return user

    def _bearer(self, secret: str, now: float) -> ConsoleUser | None:
        """Returns the user of a token of the API, or of an access token of the identity provider."""
        if self._oidc is not None and self._oidc.is_token(secret):
            login = self._oidc.login_of_token(secret)
            return None if login is None else ConsoleUser(login.user, login.groups, login.ends)
        name = self._tokens.user_of(secret, now)
        return None if name is None else ConsoleUser(name)

    def _goes_on(self, request: web.Request) -> bool:
        kind, secret = _shown(request)
        if kind == "bearer":
            return self._bearer(secret, time.time()) is not None
        return self._logins.is_on(request.cookies.get(COOKIE, ""), time.time())

    def _allow(self, one: ApiOperation, user: ConsoleUser | None) -> None:
        if one.who in (ADMIN, CHANGE) and (user is None or not self._settings.has_admin(user.name, user.groups)):
            raise ApiError(403, "only for users that console.admins names, and groups that console.admin_groups names")
        if one.who == CHANGE and not self._settings.write:
            raise ApiError(403, "this console is read-only; console.write: true lets admins change things")

    async def _login(self, request: web.Request, body: dict[str, Any], now: float) -> web.Response:
        address = request.remote or ""
        user = body["user"]
        block = self._guesses.count_guess(address, now)  # before it is judged, since many may come at once
        found = await self._answering.authenticate(user, body["password"], address)
        if found is None:
            LogEvent.CONSOLE_LOGIN_FAILED.say(log, user=user, address=address)
            raise ApiError(401, "user or password is wrong")
        self._guesses.right(block, now)
        return self._begin_login(request, web.json_response({"user": found.name}), found, now)

    def _begin_login(self, request: web.Request, response: web.Response, user: ConsoleUser, now: float) -> web.Response:
        """Begins a login of the page and gives its cookie to the browser."""
        LogEvent.CONSOLE_LOGIN.say(log, user=user.name, address=request.remote or "")
        response.set_cookie(
            COOKIE,
            self._logins.begin_login(user, now),
            httponly=True,
            samesite="Strict",
            secure=request.secure,
            path="/",
        )
        return response

    # --------------------------------------------------------------------------------- identity provider

    def _ways(self) -> dict[str, str]:
        provider = self._provider
        return {} if provider is None else {"provider": BEGIN, "name": provider.name}

    async def _to_provider(self, request: web.Request) -> web.Response:
        """Sends the browser to the identity provider."""
        assert self._provider is not None
        try:
            begun = await self._provider.begin_login()
        except FlowError as error:
            return _said(502, error)
        response = web.Response(status=303, headers={"Location": begun.address})
        # Lax: the provider's page sends the browser back, and a Strict cookie would not come along.
        response.set_cookie(
            FLOW_COOKIE, begun.cookie, max_age=int(FLOW_S), httponly=True, samesite="Lax", secure=request.secure,
            path="/login",
        )  # fmt: skip
        return response

    async def _from_provider(self, request: web.Request) -> web.Response:
        """Takes a browser that comes back from the identity provider."""
        assert self._provider is not None
        now, address = time.time(), request.remote or ""
        try:
            block = self._guesses.count_guess(address, now)
            user = await self._provider.finish(dict(request.query), request.cookies.get(FLOW_COOKIE, ""))
        except TooManyError:
            return _said(429, "too many failed logins from this address; wait a minute")
        except FlowError as error:
            LogEvent.CONSOLE_LOGIN_FAILED.say(log, address=address, reason=str(error))
            response = _said(401, error)
        else:
            self._guesses.right(block, now)
            response = self._begin_login(request, web.Response(status=303, headers={"Location": "/"}), user, now)
        response.del_cookie(FLOW_COOKIE, path="/login")
        return response

    def _logout(self, request: web.Request) -> web.Response:
        self._logins.end_login(request.cookies.get(COOKIE, ""))
        response = web.json_response({})
        response.del_cookie(COOKIE, path="/")
        return response

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Adds the headers of every answer. An unexpected error is a line in the log; its answer reveals nothing of
        the inside.
        """
        with self._door.without_timer(request.transport) if self._door is not None else contextlib.nullcontext():
            try:
                response = self._misdirected(request) or await handler(request)
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

    def _misdirected(self, request: web.Request) -> web.Response | None:
        """Returns the refusal of a request caused by a page of another site; None if the request may be answered."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if not self._hosts.knows_host(host):
            return _error(421, "this console is not called so; name it in console.hosts")
        if origin is not None and not self._hosts.may_ask(origin, host):
            return _error(403, "a page of another site asks; name it in console.hosts if it is a proxy of yours")
        return None


def _shown(request: web.Request) -> tuple[str, str]:
    """Returns a program's kind of credential, in small letters, and the secret; both empty for a browser."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return kind.lower(), secret.strip()


def _said(status: int, text: object) -> web.Response:
    """Returns a refusal for a person who has left the page for the provider."""
    return web.Response(status=status, text=f"{text}\n")


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _page(file: str, kind: str) -> Handler:
    content = (STATIC / file).read_text("utf-8")

    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text=content, content_type=kind)

    return page
