"""TLS for the links of the overlay: admits members only, and recognises the member of a connection.

Both sides show a certificate. The certificate authorities of the trust domains in the signed overlay are trusted; a
chain to one of them is necessary, not sufficient: the key in the certificate must also be the key the overlay's owner
certified for a member (`recognise`), so no authority can bring in a member of its own making or imitate a member of
another domain. Host names are not checked, for the key is the stronger name. TLS 1.3 only. Members and our own
certificate may change while links stand: new handshakes see the new state.

Not here: listeners for ordinary clients (`gateway/broker/edge_broker.py`), making certificates
(`gateway/trust/domains.py`).
"""

from __future__ import annotations

import ssl
import time
from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bridge.base import OperatorError
from gateway.base import PrivateFileError, read_private
from keys.errors import KeysError
from keys.identity import Certificate, Role, public_key_of

NOT_YET_VALID, HAS_ENDED = OUT_OF_TIME = 9, 10
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL: mostly one of two clocks is wrong."""
SOMEBODY_ELSE = "shows the certificate of somebody else; check the address, or take the newest overlay file"


class TlsError(OperatorError):
    """An error of TLS in a line for the operator: the member, the fault and the cure."""


class _Member(Protocol):
    @property
    def certificates(self) -> tuple[Certificate, ...]: ...
    @property
    def ca(self) -> bytes: ...


class LinkTls:
    """The TLS contexts of a member for all its links, and the recognition of peers.

    `members`: name to member as in `Overlay.members`. `clock`: seconds since the UNIX epoch. Raises TlsError when
    key, certificate or an authority cannot be used, or when the certificate is not that of `name` in the overlay.
    """

    def __init__(
        self,
        name: str,
        cert: Path,
        key: Path,
        members: Mapping[str, _Member],
        clock: Callable[[], float] = time.time,
    ) -> None:
        if name not in members:
            raise TlsError(f"{name} is no member of the overlay; ask its owner to add your card")
        self._name, self._clock = name, clock
        self._by_key: dict[bytes, tuple[str, int]] = {}
        self._authorities: set[bytes] = set()
        if not any(_authorities_of(members)):
            raise TlsError("the overlay lists no certificate authority; sign it anew with its members' cards")
        self.server = _context(ssl.PROTOCOL_TLS_SERVER)
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT)
        self.trust(members)
        self.show(cert, key)

    def trust(self, members: Mapping[str, _Member]) -> None:
        """Trusts these members, and no others, from the next handshake on. Standing connections are left alone.

        A removed authority stays in the contexts, which cannot forget; members that only it vouches for are not
        recognised. Raises TlsError, before any change, for an authority that cannot be read.
        """
        added = _authorities_of(members) - self._authorities
        for authority in added:
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), authority)
        for authority in added:
            _trust(self.server, authority)
            _trust(self.client, authority)
        self._authorities |= added
        self._by_key = {
            certificate.public_key: (name, certificate.not_after_ms)
            for name, member in members.items()
            for certificate in member.certificates
        }

    def show(self, cert: Path, key: Path) -> None:
        """Shows this certificate chain from the next handshake on: at the start, and after a rotation.

        Raises TlsError, before any change, for a certificate that cannot be shown or is not ours in the overlay.
        """
        _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert, key)
        shown = public_key_of(ssl.PEM_cert_to_DER_cert(_first_certificate(cert)))
        if self._by_key.get(shown, ("", 0))[0] != self._name:
            raise TlsError(
                f"{cert} is not the certificate of {self._name} in the overlay; sign the overlay anew or restore it"
            )
        for context in (self.server, self.client):
            _show(context, cert, key)

    def recognise(self, cert_der: bytes | None) -> str | None:
        """Returns the name of the member with this certificate's key, or None for any other certificate.

        After a rotation the former key counts too, until the end of its overlay certificate.
        """
        if not cert_der:
            return None
        try:
            name, not_after_ms = self._by_key.get(public_key_of(cert_der), (None, 0))
        except (KeysError, ValueError):
            return None
        return name if self._clock() * 1000 < not_after_ms else None

    def peer_name(self, transport: BaseTransport) -> str | None:
        """Returns the name of the member at the other end of a connected transport, or None for any other peer."""
        ssl_object = transport.get_extra_info("ssl_object")
        return self.recognise(ssl_object.getpeercert(binary_form=True)) if ssl_object is not None else None


def _authorities_of(members: Mapping[str, _Member]) -> set[bytes]:
    """Returns the authorities of trust domains.

    The authority of a hosted broker's web certificate vouches for no member.
    """
    return {m.ca for m in members.values() if m.ca and m.certificates[0].role is not Role.HOSTED}


def shows(ssl_object: Any, recognise: Callable[[bytes], bool]) -> bool:
    """Returns True if the other end of a connection (None: without TLS) shows the intended certificate (DER)."""
    shown: bytes | None = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
    return recognise(shown) if shown else False


def group_of(ssl_object: Any) -> str:
    """Returns the group of the key agreement of a connection after its handshake; nothing without TLS, or where Python
    cannot be asked: `ssl` has the question from 3.15 on.
    """
    ask = getattr(ssl_object, "group", None)
    return "" if ask is None else str(ask() or "")


def explain(error: BaseException, address: str) -> str:
    """Returns a line for a failed TLS handshake or a connection that ended in the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in OUT_OF_TIME:
        ours = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        what = "is not valid yet" if error.verify_code == NOT_YET_VALID else "has ended"
        return f"{address} shows a certificate that {what} by our clock, {ours}; set our clock by NTP, or renew theirs"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{address} shows a certificate that no trust domain of the overlay issued "
            f"({error.verify_message}); check the address, or take the newest overlay file"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            return (
                f"{address} refused our certificate ({reason}); it may not know the newest overlay file, "
                "or our certificate is expired"
            )
        return f"{address}: TLS failed ({reason}); check that it is a listener of the overlay"
    if isinstance(error, TimeoutError):
        return f"{address} does not answer; check the address, and that a broker listens there"
    if isinstance(error, OSError):
        why = error.strerror or str(error) or "ended the connection"
        return f"{address}: {why}; check the address, and that a broker listens there"
    return f"{address}: {error}"


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        # Tickets would let a member that the overlay no longer lists resume without showing its certificate.
        context.num_tickets = 0
    return context


def _show(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        read_private(key)
        context.load_cert_chain(cert, key)
    except PrivateFileError as error:
        raise TlsError(str(error)) from None
    except FileNotFoundError:
        raise TlsError(f"{cert}: no such file; make an identity with `veilmq trust issue`") from None
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"{cert} and {key} are not a certificate and its key ({error}); issue them anew") from None


def _trust(context: ssl.SSLContext, authority: bytes) -> None:
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"the overlay lists an authority that cannot be read ({error}); sign it anew") from None


def _first_certificate(path: Path) -> str:
    text = path.read_text("ascii")
    end = "-----END CERTIFICATE-----"
    return text[: text.index(end) + len(end)] + "\n"
