"""Trust domains, identities and the signed overlay as files of a member.

Imports `client` (TLS) and below; signs nothing as the owner.
"""

from __future__ import annotations

from gateway.trust.credentials import Credentials
from gateway.trust.domains import RESTORED, Card, LocalIdentity, TrustDomain, load_key, load_working_key, read_public
from gateway.trust.errors import TrustError
from gateway.trust.live_overlay import LOOK_EVERY_S, LiveOverlay, take_listed_key
from gateway.trust.overlay_file import date_of, document_bytes, load_overlay, load_secrets, read_document
from gateway.trust.rotation import NEXT
from gateway.trust.tokens import token_key

__all__ = [
    "LOOK_EVERY_S",
    "NEXT",
    "RESTORED",
    "Card",
    "Credentials",
    "LiveOverlay",
    "LocalIdentity",
    "TrustDomain",
    "TrustError",
    "date_of",
    "document_bytes",
    "load_key",
    "load_overlay",
    "load_secrets",
    "load_working_key",
    "read_document",
    "read_public",
    "take_listed_key",
    "token_key",
]
