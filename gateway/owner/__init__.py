"""Work of the overlay's owner: descriptions, cards, rights and views become the next signed version.

Imports `trust` and below; no running broker.
"""

from __future__ import annotations

from gateway.owner.attaching import Changed
from gateway.owner.cards import SignOptions
from gateway.owner.signing import Signed, sign_overlay

__all__ = [
    "Changed",
    "SignOptions",
    "Signed",
    "sign_overlay",
]
