"""Opening many data keys at once, for readers getting a key with nearly every publication (`envelope.open_key` opens
one).

Headers of a publisher and scope differ in fields of fixed size only. The other bytes are decoded once: a frame with
equal bytes there is equally well-formed. Secrets behind shares of equal places are recombined together. Each key is
checked and derived as `envelope.open_key` says.

Not here: signatures of headers and commitments of shares (the receiver's), the scope's epoch key (`epochs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from keys import frames
from keys.derivation import Derivation
from keys.envelope import DataKey, open_derived, wrong_epoch_key
from keys.epochs import KeyName
from keys.errors import BadContent, BadFrame, BadShare, KeysError
from keys.keyheader import (
    COMMITMENT_BYTES,
    HOP_BYTES,
    KCV_BYTES,
    LIMIT_BYTES,
    PUBLISHER_AT,
    SCOPE_AT,
    SIGNATURE_BYTES,
    WRAPPED,
    KeyHeader,
)
from keys.shamir import interpolate
from keys.sharetree import SECRET_BYTES, decode_shares

K = TypeVar("K")
V = TypeVar("V")
OUTLINES_KEPT = 1024
"""Scopes, epochs and paths that are remembered; bounds memory."""
_OPENINGS = frames.opening(frames.Kind.KEY_HEADER), frames.opening(frames.Kind.KEY_HEADER, WRAPPED)
_NO_LIMIT = bytes(LIMIT_BYTES)
_LEVEL_1_HEAD = 14  # opening, depth, one region and view, count
_LEVEL_1_SHARE = 1 + SECRET_BYTES  # place, value


class Outline(NamedTuple):
    """The fields that headers of a publisher's keys share.

    `preamble_bytes`: the size up to the commitments; `path`: the bytes from the scope to the counters; `size`: of a
    header.
    """

    name: KeyName
    threshold: int
    preamble_bytes: int
    path: bytes
    size: int


@dataclass(slots=True)
class SealedKey:
    """A key to open.

    `key_id`: `key_id_of` the header. `header`, `shares`: the frames of its header and of exactly k level-1 shares.
    `scope_key`: its epoch key, None if the scope has none.
    """

    key_id: bytes
    outline: Outline
    header: bytes
    shares: bytes = field(repr=False)
    scope_key: bytes | None = field(repr=False)


class KeyOpener:
    """An opener of many keys. It remembers outlines and derivations of epoch keys, no data key and no secret of
    one.
    """

    def __init__(self) -> None:
        self._outlines: dict[tuple[int, bytes], Outline] = {}
        self._last: Outline | None = None
        self._places: dict[tuple[int, bytes, bytes], tuple[int, ...]] = {}
        self._derivations: dict[bytes | None, Derivation] = {}

    def outline(self, header: bytes) -> Outline:
        """Returns the outline of an encoded key header, whose signature is not checked. Raises `BadFrame`."""
        known = self._last
        if known is None or (
            header[SCOPE_AT : SCOPE_AT + len(known.path)] != known.path
            or len(header) != known.size
            or header[:PUBLISHER_AT] not in _OPENINGS
        ):
            path = header[SCOPE_AT : _counters_at(header)]
            known = self._outlines.get((len(header), path)) if header.startswith(_OPENINGS) else None
            if known is None:
                decoded = KeyHeader.decode(header)
                known = Outline(decoded.epoch_key, decoded.hops[0].threshold, len(decoded.preamble), path, len(header))
                _keep(self._outlines, (len(header), path), known)
            self._last = known
        if header[known.preamble_bytes - LIMIT_BYTES : known.preamble_bytes] == _NO_LIMIT:
            raise BadFrame("a data key serves at least one message")
        return known

    def open_keys(self, sealed: Sequence[SealedKey]) -> list[DataKey | KeysError]:
        """Returns each key, or the error that kept it closed: `WrongEpochKey`, `BadShare`, `BadFrame`,
        `BadContent`.
        """
        return [
            self._derive(each, secret) if isinstance(secret, bytes) else secret
            for each, secret in zip(sealed, self._secrets(sealed), strict=True)
        ]

    def _secrets(self, sealed: Sequence[SealedKey]) -> list[bytes | KeysError]:
        """Returns the recombined secrets: an interpolation serves all keys whose shares have equal places."""
        secrets: list[bytes | KeysError] = []
        together: dict[tuple[int, ...], list[int]] = {}
        for number, each in enumerate(sealed):
            secrets.append(b"")
            try:
                together.setdefault(self._places_of(each), []).append(number)
            except KeysError as error:
                secrets[number] = error
        for places, numbers in together.items():
            values = [
                b"".join([sealed[number].shares[start : start + SECRET_BYTES] for number in numbers])
                for start in range(_LEVEL_1_HEAD + 1, _LEVEL_1_HEAD + len(places) * _LEVEL_1_SHARE, _LEVEL_1_SHARE)
            ]
            joined = interpolate(places, values)
            for index, number in enumerate(numbers):
                secrets[number] = joined[index * SECRET_BYTES : (index + 1) * SECRET_BYTES]
        return secrets

    def _places_of(self, sealed: SealedKey) -> tuple[int, ...]:
        """Returns the places of a key's shares. Raises `BadFrame`, `BadShare`."""
        shares = sealed.shares
        # All of the frame but the values: equal in frames that are equally well-formed.
        shape = (len(shares), shares[:_LEVEL_1_HEAD], shares[_LEVEL_1_HEAD::_LEVEL_1_SHARE])
        places = self._places.get(shape)
        if places is None:
            decoded = decode_shares(shares)
            if any(len(share.label) != 1 for share in decoded):
                raise BadShare("shares of a lower level")
            places = tuple(share.label[0].place for share in decoded)
            _keep(self._places, shape, places)
        if len(places) != sealed.outline.threshold:
            raise BadShare(f"{len(places)} shares where exactly {sealed.outline.threshold} open the key")
        return places

    def _derive(self, sealed: SealedKey, secret: bytes) -> DataKey | KeysError:
        end = sealed.outline.preamble_bytes
        header, scope_key = sealed.header, sealed.scope_key
        derivation = self._derivations.get(scope_key)
        if derivation is None:
            derivation = Derivation(scope_key)
            _keep(self._derivations, scope_key, derivation)
        if header[end : end + KCV_BYTES] != derivation.check_value:
            return wrong_epoch_key(sealed.outline.name)
        commitment = header[end + KCV_BYTES : end + KCV_BYTES + COMMITMENT_BYTES]
        binding = hashlib.sha256(header[:end]).digest()
        try:
            return open_derived(sealed.key_id, binding, commitment, secret, derivation)
        except BadContent as error:
            return error


def key_id_of(header: bytes) -> bytes:
    """Returns the key id of an encoded key header."""
    return hashlib.sha256(header[:-SIGNATURE_BYTES]).digest()[:16]


def publisher_of(header: bytes) -> bytes:
    """Returns the publisher of an encoded key header."""
    return header[PUBLISHER_AT:SCOPE_AT]


def _counters_at(header: bytes) -> int:
    """Returns the offset of generation, counter, first sequence and message limit. Raises `BadFrame` if there is
    none.
    """
    hops_at = SCOPE_AT + 2 + int.from_bytes(header[SCOPE_AT : SCOPE_AT + 2]) + 6
    if hops_at >= len(header):
        raise BadFrame(f"a key header of {len(header)} bytes")
    return hops_at + 1 + header[hops_at] * HOP_BYTES


def _keep(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= OUTLINES_KEPT:
        known.clear()
    known[key] = value
