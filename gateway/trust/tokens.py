"""Keys in a token of PKCS#11: a smart card, a hardware security module, a TPM behind tpm2-pkcs11, SoftHSM.

    pkcs11:token=plant;object=owner?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/veilmq/pin

A URI (RFC 7512) names the key. Its PIN comes from a private file (`pin-source`) or from the environment
(`VEILMQ_PIN`), never from the URI, which stands in files and on command lines. The token signs by CKM_EDDSA; the key
never leaves it. Where the URI stands: `domains.load_key`. Not here: making keys, which is the token's own tool's work.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

from gateway.base import PrivateFileError, read_private
from gateway.trust.errors import TrustError
from keys.identity import PUBLIC_KEY_BYTES, SIGNATURE_BYTES

if TYPE_CHECKING:
    from pkcs11 import Session

SCHEME = "pkcs11:"
PIN_VARIABLE = "VEILMQ_PIN"
MAX_URI_CHARS = 4096
"""Stops a wrong file from being read as a URI."""
MAX_OBJECTS = 64
"""Keys of one name that are looked at; two are too many already."""
_TOKEN = {"token": "token_label", "serial": "token_serial", "manufacturer": "manufacturer_id", "model": "model"}
_PATH = frozenset({*_TOKEN, "object", "id", "type"})
_QUERY = frozenset({"module-path", "pin-source"})
_T = TypeVar("_T")
_refused: set[tuple[object, ...]] = set()  # logins that a token refused: a second try with that PIN might lock it


@dataclass(frozen=True, slots=True)
class TokenUri:
    """The parts of a URI. `of_token`: attributes of the token; `label`, `id`: those of the key, None if any."""

    text: str
    module: str
    of_token: Mapping[str, str]
    label: str | None
    id: bytes | None
    pin_source: str | None

    @classmethod
    def parse(cls, text: str) -> TokenUri:
        """Raises TrustError for a URI that names no key, module or token, holds a PIN, or says more than is known."""
        if "pin-value" in text:  # wherever it stands: messages show the rest
            raise TrustError(f"pin-value shows the PIN to others; write pin-source=file:PATH, or set {PIN_VARIABLE}")
        path, _, query = text.removeprefix(SCHEME).partition("?")
        if not text.startswith(SCHEME) or len(text) > MAX_URI_CHARS or any(c.isspace() for c in text):
            raise TrustError(f"a key in a token is named by {SCHEME}token=...;object=...?module-path=...; write that")
        parts, asked = _attributes(path, ";", _PATH), _attributes(query, "&", _QUERY)
        if "module-path" not in asked:
            raise TrustError(f"{_shown(path)} names no module; add ?module-path=LIBRARY, the .so file of the token")
        if not _TOKEN.keys() & parts.keys():
            raise TrustError(f"{_shown(path)} names no token; add token=LABEL or serial=NUMBER")
        if not {"object", "id"} & parts.keys():
            raise TrustError(f"{_shown(path)} names no key; add object=LABEL or id=%01")
        if parts.get("type", b"private") != b"private":
            raise TrustError(f"{_shown(path)} names no private key; write type=private, or leave it out")
        of_token = {key: _text(parts[name]) for name, key in _TOKEN.items() if name in parts}
        label = _text(parts["object"]) if "object" in parts else None
        source = _text(asked["pin-source"]) if "pin-source" in asked else None
        return cls(text, _text(asked["module-path"]), of_token, label, parts.get("id"), source)

    def pin(self) -> str:
        """Returns the PIN. Raises TrustError if there is none, or others may read its file."""
        if self.pin_source is None:
            pin = os.environ.get(PIN_VARIABLE, "")
            if not pin:
                raise TrustError(f"{self} wants a PIN; add &pin-source=file:PATH, or set {PIN_VARIABLE}")
            return pin
        if self.pin_source.startswith("|"):
            raise TrustError(f"{self} has a command as pin-source, which is not run; write the PIN to a private file")
        try:
            pin = (
                read_private(Path(self.pin_source.removeprefix("file://").removeprefix("file:")))
                .decode()
                .rstrip("\r\n")
            )
        except PrivateFileError as error:
            raise TrustError(str(error)) from None
        except UnicodeDecodeError:
            pin = ""
        if not pin:
            raise TrustError(f"{self.pin_source}: holds no PIN; write it there")
        return pin

    @property
    def login(self) -> tuple[object, ...]:
        """The token and the source of its PIN."""
        return self.module, *sorted(self.of_token.items()), self.pin_source

    def __str__(self) -> str:
        return _shown(self.text.removeprefix(SCHEME).partition("?")[0])


class TokenKey:
    """An Ed25519 key in a token: a `Signer` (`keys.identity`). Threads may share it.

    A session that the token ended is opened once more; a key that then does not sign raises TrustError. A PIN that was
    refused is not tried again in this process.
    """

    def __init__(self, uri: TokenUri) -> None:
        self._uri, self._lock = uri, threading.Lock()
        self._session: Session | None = None
        self._key: Any = None  # a `pkcs11.PrivateKey` with the methods of a key that signs
        with self._lock:
            self.public_bytes: bytes = self._said(self._find_key)

    def sign(self, data: bytes, /) -> bytes:
        """Returns the signature. Raises TrustError."""
        with self._lock:
            return self._said(lambda: self._sign_in_token(data))

    def _sign_in_token(self, data: bytes) -> bytes:
        import pkcs11  # noqa: PLC0415  an optional library

        signature = None
        if self._key is not None:
            with contextlib.suppress(pkcs11.PKCS11Error):  # the token ended the session
                signature = bytes(self._key.sign(data, mechanism=pkcs11.Mechanism.EDDSA))
        if signature is None:
            if self._find_key() != self.public_bytes:
                raise TrustError(f"{self._uri} is another key than before; put the former token back")
            signature = bytes(self._key.sign(data, mechanism=pkcs11.Mechanism.EDDSA))
        if len(signature) != SIGNATURE_BYTES:
            raise TrustError(f"{self._uri} signs in {len(signature)} bytes; it must be an Ed25519 key")
        return signature

    def _find_key(self) -> bytes:
        """Finds the key in a new session; returns its public key. Raises TrustError, PKCS11Error."""
        import pkcs11  # noqa: PLC0415
        from pkcs11 import Attribute, ObjectClass  # noqa: PLC0415

        if self._session is not None:
            session, self._session, self._key = self._session, None, None
            _ignoring(session.close)
        token = self._token()
        if self._uri.login in _refused:
            raise pkcs11.PinIncorrect
        try:
            session = token.open(user_pin=self._uri.pin())
        except pkcs11.UserAlreadyLoggedIn:  # by another key of the same token
            session = token.open()
        try:
            private = self._objects(session, ObjectClass.PRIVATE_KEY, self._uri.id, self._uri.label)
            if len(private) != 1:
                raise TrustError(_not_one(self._uri, len(private)))
            public = self._objects(session, ObjectClass.PUBLIC_KEY, private[0].id or self._uri.id, None)
            points = {bytes(each[Attribute.EC_POINT]) for each in public}
            if len(points) != 1:
                raise TrustError(f"{self._uri}: the token shows no public key with the key's id; store that there, too")
        except BaseException:
            _ignoring(session.close)
            raise
        self._session, self._key = session, private[0]
        return _raw(self._uri, points.pop())

    @staticmethod
    def _objects(session: Session, kind: Any, id: bytes | None, label: str | None) -> list[Any]:
        from pkcs11 import Attribute  # noqa: PLC0415

        wanted: dict[Any, Any] = {Attribute.CLASS: kind}
        wanted |= {Attribute.ID: id} if id is not None else {}
        wanted |= {Attribute.LABEL: label} if label is not None else {}
        return list(islice(session.get_objects(wanted), MAX_OBJECTS))

    def _token(self) -> Any:
        import pkcs11  # noqa: PLC0415

        if not Path(self._uri.module).is_file():
            raise TrustError(f"{self._uri.module}: no such module; install the token's software, or mend module-path")
        library = pkcs11.lib(self._uri.module)
        wanted: dict[str, Any] = dict(self._uri.of_token)
        narrow = {key: wanted.pop(key) for key in ("manufacturer_id", "model") if key in wanted}
        if "token_serial" in wanted:
            wanted["token_serial"] = wanted["token_serial"].encode()
        found = [
            token for token in library.get_tokens(**wanted)
            if all(getattr(token, key) == value for key, value in narrow.items())
        ]  # fmt: skip
        if len(found) > 1:
            raise TrustError(f"{self._uri} fits {len(found)} tokens; add serial=NUMBER")
        if not found:
            raise TrustError(f"{self._uri}: no such token; plug it in, or mend the URI (pkcs11-tool -L lists tokens)")
        return found[0]

    def _said(self, work: Callable[[], _T]) -> _T:
        """Returns the work's result. Raises TrustError for each error of the library, with a cure."""
        import pkcs11  # noqa: PLC0415

        uri = self._uri
        source = uri.pin_source or PIN_VARIABLE
        try:
            with _no_errors_left():
                return work()
        except (pkcs11.PinIncorrect, pkcs11.PinInvalid, pkcs11.PinLenRange):
            _refused.add(uri.login)
            said = f"{uri} refuses the PIN of {source}; correct it, before the token locks itself"
        except (pkcs11.PinLocked, pkcs11.PinExpired, pkcs11.UserPinNotInitialized) as error:
            said = f"{uri} takes no PIN ({type(error).__name__}); set one with the token's own tool"
        except (pkcs11.MechanismInvalid, pkcs11.KeyTypeInconsistent):
            said = f"{uri} does not sign by CKM_EDDSA; take an Ed25519 key, and a token that knows them"
        except (pkcs11.PKCS11Error, RuntimeError, OSError) as error:
            said = f"{uri} does not answer ({type(error).__name__}); check the token and its module"
        raise TrustError(said)


@lru_cache(maxsize=64)
def token_key(text: str) -> TokenKey:
    """Returns the key that a URI names, opened once in this process. Raises TrustError."""
    uri = TokenUri.parse(text)
    try:
        import pkcs11  # noqa: F401, PLC0415
    except ImportError:
        raise TrustError(f"{uri} needs the library python-pkcs11; install veilmq[pkcs11]") from None
    return TokenKey(uri)


def _not_one(uri: TokenUri, found: int) -> str:
    if found:
        return f"{uri} fits {found} keys; add id=%01 or another label"
    label = uri.label or "NAME"
    return (
        f"{uri}: no such key; make one: pkcs11-tool --module {uri.module} --login --keypairgen "
        f"--key-type EC:edwards25519 --label {label} --id 01"
    )


def _raw(uri: TokenUri, point: bytes) -> bytes:
    """Returns the 32 bytes of a CKA_EC_POINT: a DER octet string (PKCS#11 3.0), or bare in some tokens."""
    raw = point[2:] if point[:2] == bytes([4, PUBLIC_KEY_BYTES]) else point
    if len(raw) != PUBLIC_KEY_BYTES:
        raise TrustError(f"{uri} is not an Ed25519 key; make one of type EC:edwards25519")
    return raw


def _attributes(text: str, separator: str, known: frozenset[str]) -> dict[str, bytes]:
    """Returns attributes by name. Raises TrustError; its text shows no value, since one may be a PIN."""
    found: dict[str, bytes] = {}
    for each in text.split(separator) if text else ():
        name, _, value = each.partition("=")
        if name not in known or name in found or not value:
            raise TrustError(
                f"{SCHEME}... has {name[:32]!r} twice, empty, or unknown; known are {', '.join(sorted(known))}"
            )
        found[name] = unquote_to_bytes(value)
    return found


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise TrustError(f"a name in {SCHEME}... is not UTF-8; write it in percent codes of UTF-8") from None


def _shown(path: str) -> str:
    return f"{SCHEME}{path}"


@contextlib.contextmanager
def _no_errors_left() -> Iterator[None]:
    """Empties OpenSSL's queue of errors of this thread afterwards: a module that shares our OpenSSL, as SoftHSM does,
    leaves errors there, which the next call of `ssl` would raise as its own. A refused list of ciphers empties it.
    """
    try:
        yield
    finally:
        with contextlib.suppress(ssl.SSLError):
            _CONTEXT.set_ciphers("none")


_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _ignoring(work: Callable[[], object]) -> None:
    """Closes a session that the token may have ended already."""
    import pkcs11  # noqa: PLC0415

    with contextlib.suppress(pkcs11.PKCS11Error):
        work()
