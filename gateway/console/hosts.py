"""Names under which a console answers. Browsers send the requested name, and the page that caused the request.

A foreign page can let its own name stand for 127.0.0.1 (DNS rebinding) and then read the answers. It cannot change the
name the browser sends. The console answers to addresses, `localhost`, `console.hosts` and the names of its
certificate.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
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
    """Names of a console. `configured`: `console.hosts`; `certified`: of the certificate, set anew with it."""

    def __init__(self, configured: Iterable[str]) -> None:
        self._configured = frozenset(name.lower() for name in configured)
        self.certified: frozenset[str] = frozenset()

    def knows(self, host: str) -> bool:
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
