"""The server of a command, and the client connecting to the server: address, login, TLS, session, words of refusals.

A refusal is a line with the reason code of MQTT and a cure. The client returns by itself after a lost connection and
says so on standard error, once for each loss.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.base import OperatorError
from gateway.base import PrivateFileError, read_private
from gateway.client import ClientError, MqttClient
from gateway.client.redial import host_port
from gateway.client.tls import explain
from gateway.mqtt5.packets import NO_PROPERTIES, Properties, Version, Will
from gateway.mqtt5.types import NEVER_EXPIRES_S, ReasonCode

PASSWORD_VARIABLE = "VEILMQ_PASSWORD"  # noqa: S105  the name of an environment variable
KEPT_S = 300
"""Seconds for which a server of MQTT 5 keeps the session of a running command whose connection is lost."""

CURES = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "try --mqtt 3.1.1",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "give another --id, or none",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "give --username and --password-file, or correct them",
    ReasonCode.NOT_AUTHORIZED: "give --username and --password-file of a user with that right, or ask for the right",
    ReasonCode.SERVER_UNAVAILABLE: "see `veilmq status` of that broker",
    ReasonCode.SERVER_BUSY: "try again later",
    ReasonCode.BANNED: "ask the operator of that broker",
    ReasonCode.BAD_AUTHENTICATION_METHOD: "that broker wants another way to log in",
    ReasonCode.SESSION_TAKEN_OVER: "another client uses this --id; give another one",
    ReasonCode.TOPIC_FILTER_INVALID: "correct the filter: + stands for one level, # for all at the end",
    ReasonCode.TOPIC_NAME_INVALID: "correct the topic: no + and no #; a response topic must be protected, too",
    ReasonCode.PACKET_TOO_LARGE: "send less at once, or raise limits.packet_bytes there",
    ReasonCode.QUOTA_EXCEEDED: "that broker holds all it may for this client; send more slowly, see `veilmq status`",
    ReasonCode.RETAIN_NOT_SUPPORTED: "leave --retain out",
    ReasonCode.QOS_NOT_SUPPORTED: "take a lower --qos",
    ReasonCode.CONNECTION_RATE_EXCEEDED: "connect less often",
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "take the filter without $share/NAME/",
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: "name the topics",
}
"""Cures of refusals, by reason code; for other codes the log of the broker tells more."""
_OTHERWISE = "see the log of that broker"


class TerminalError(OperatorError):
    """An error of `veilmq pub`, `sub` or `bench` in a line: cause and cure."""


@dataclass(frozen=True)
class TlsFiles:
    """TLS of a connection. `wanted`: also without files, with the authorities of the system."""

    wanted: bool = False
    cafile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    any_name: bool = False

    def context(self) -> ssl.SSLContext | None:
        """Returns the context, or None for a connection in clear. Raises TerminalError for an unusable file."""
        if (self.certfile is None) != (self.keyfile is None):
            raise TerminalError("--certfile and --keyfile go together; give both or none")
        if not (self.wanted or self.cafile or self.certfile or self.any_name):
            return None
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = not self.any_name
        try:
            if self.cafile is not None:
                _readable(self.cafile)
                context = ssl.create_default_context(cafile=str(self.cafile))
                context.check_hostname = not self.any_name
        except (OSError, ValueError) as error:
            raise TerminalError(f"{self.cafile}: is no certificate authority ({error}); give its PEM file") from None
        if self.certfile is not None and self.keyfile is not None:
            _readable(self.certfile)
            _readable(self.keyfile)
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=_no_password)
            except (OSError, ValueError) as error:
                text = f"{self.certfile}, {self.keyfile}: no certificate with its key ({error}); give both as PEM"
                raise TerminalError(text) from None
        return context


def _no_password() -> str:
    """Stands for the question of OpenSSL at the terminal, which a command must not ask."""
    raise ValueError("the key has a password; give one without")


def _readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise TerminalError(f"{path}: {error.strerror}; correct the path or its permissions") from None


@dataclass(frozen=True)
class Server:
    """A server, and the session asked of it. `session_s`: seconds that the session outlives the command.

    Without `session_s` the session ends with the command. `client_id`: "" lets one be made up.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    version: Version = Version.V5
    client_id: str = ""
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    keep_alive_s: int = 30
    session_s: int = 0
    will: Will | None = None

    @property
    def address(self) -> str:
        return host_port((self.host, self.port))

    def client(self, **options: Any) -> TerminalClient:
        """Returns a client that is not connected yet. `options`: further arguments of `MqttClient`."""
        client_id = self.client_id or f"veilmq-{os.urandom(6).hex()}"
        return TerminalClient(self, **{"client_id": client_id, **options})


def password_of(file: Path | None) -> bytes | None:
    """Returns the password in a private file, else that in the environment, else None. Raises TerminalError.

    A password is no argument, since other users of the host see arguments.
    """
    if file is None:
        value = os.environ.get(PASSWORD_VARIABLE)
        return None if value is None else value.encode()
    try:
        return read_private(file).rstrip(b"\r\n")
    except PrivateFileError as error:
        raise TerminalError(f"--password-file {error}") from None


def _tell(line: str) -> None:
    print(f"veilmq: {line}", file=sys.stderr, flush=True)


class TerminalClient(MqttClient):
    """A client of a command. `on_room`: called when the transport takes bytes again after a pause.

    `tells`: lost and restored connections are said on standard error.
    """

    cure_without_v5 = "does not speak MQTT 5; give --mqtt 3.1.1"

    def __init__(self, server: Server, tells: bool = True, **options: Any) -> None:
        keeps = server.session_s > 0
        self._server, self._tells, self._is_told = server, tells, False
        self.on_room: Callable[[], object] = lambda: None
        self.losses = 0
        super().__init__(
            server.host, server.port, ssl=server.tls, username=server.username, password=server.password,
            will=server.will, keep_alive_s=server.keep_alive_s, clean_start=not keeps,
            session_expiry_s=min(server.session_s or KEPT_S, NEVER_EXPIRES_S), version=server.version, **options,
        )  # fmt: skip

    async def end_session(self) -> None:
        """Disconnects; the server forgets the session, unless the command was told to leave it there."""
        forgets = self._server.version == Version.V5 and not self._server.session_s
        self._tells = False
        await self.close(Properties(session_expiry_s=0) if forgets else NO_PROPERTIES)

    async def begin_session(self) -> None:
        """Connects. Raises TerminalError for a refusal, or a server that is not there."""
        try:
            await self.connect()
        except ClientError as error:
            raise TerminalError(str(error)) from None

    def refusal_error(self, verb: str, code: int) -> TerminalError:
        """Returns the error for a request that the server answered with a reason code of failure."""
        name = ReasonCode(code).name.lower().replace("_", " ") if code in set(ReasonCode) else "unknown reason"
        said = f": {reason}" if (reason := self.acks.refusal.reason) else ""
        return TerminalError(f"{self._server.address} refused {verb}{said}: {name} (0x{code:02x}); {self._cure(code)}")

    def note_failure(self, text: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        """Says once for each loss why there is no connection; the first attempt's error ends the command instead."""
        self.last_error = text
        if self._first is not None and not self._first.done():
            self._first.set_exception(ClientError(text, code))
        elif self._tells and self.losses and not self._is_told:
            self._is_told = True
            _tell(f"{text}; trying again")

    def connection_lost(self, error: Exception | None) -> None:
        if self.connected:
            self.losses += 1
            self._is_told = False
        super().connection_lost(error)

    def _take_connack(self, action: Any) -> None:
        was_told, self._is_told = self._is_told, False
        super()._take_connack(action)
        if was_told and self._tells and self.connected:
            _tell(f"{self._server.address} is connected again")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.on_room()

    def _cure(self, reason: int | None) -> str:
        if reason is None:
            tls = "" if self._server.tls or self.losses else "if it wants TLS, give --cafile or --tls; otherwise "
            return f"{tls}{_OTHERWISE}"
        return CURES.get(reason, _OTHERWISE)  # type: ignore[call-overload, no-any-return]

    def _explained(self, error: BaseException) -> str:
        where = self._where
        if isinstance(error, ssl.SSLCertVerificationError):
            if "mismatch" in error.verify_message.lower():
                return f"{where} shows a certificate of another name ({error.verify_message}); give that name as --host"
            return f"{where} shows a certificate that is not trusted ({error.verify_message}); give --cafile FILE"
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).replace("_", " ").lower()
            if "alert" in reason and "certificate" in reason:
                return f"{where} refused the TLS handshake ({reason}); give --certfile and --keyfile that it trusts"
            return f"{where}: TLS failed ({reason}); check that this port speaks TLS, or leave the TLS options out"
        if self._server.tls is not None and isinstance(error, ConnectionError) and not error.strerror:
            return f"{where} ended the TLS handshake; check that this port speaks TLS, or leave the TLS options out"
        return explain(error, where)
