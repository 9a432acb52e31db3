"""Eras: the versions of the overlay of a span, each with the time of adoption (docs/protocol.md §12.3).

Replicas list versions with times. A version counts if f + 1 replicas name the version, from the f + 1st of their times
on: liars can neither invent a version nor move a time beyond those of honest replicas. Each document bears the owner's
signature.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence

from bridge.document import Overlay, OverlayError

DOCUMENT_BYTES_MAX = 16 << 20  # of an overlay file, decompressed: as everywhere
VALUES_MAX = 1 << 19  # in it: more would take far more memory than the file


def agreed_eras(told: Mapping[str, Sequence[tuple[int, bytes]]], faults: int) -> list[tuple[int, bytes]]:
    """Returns the eras named by f + 1 replicas, each with a time in ms, in order of time.

    `told`: the list of each replica. A version listed twice counts from the first time.
    """
    times: dict[bytes, list[int]] = {}
    for eras in told.values():
        first: dict[bytes, int] = {}
        for time_ms, digest in eras:
            first.setdefault(digest, time_ms)
        for digest, time_ms in first.items():
            times.setdefault(digest, []).append(time_ms)
    return sorted((sorted(each)[faults], digest) for digest, each in times.items() if len(each) > faults)


def of_span(eras: Sequence[tuple[int, bytes]], from_ms: int, until_ms: int) -> list[tuple[int, bytes]]:
    """Returns the eras of a span: the era at the beginning, and all later ones."""
    lasting = [era for era in eras if era[0] <= from_ms]
    return [*lasting[-1:], *(era for era in eras if from_ms < era[0] <= until_ms)]


def loaded(document: bytes, owner: bytes, time_ms: int) -> Overlay:
    """Returns the overlay of a document, compressed. Raises OverlayError unless the owner signed it."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(document, DOCUMENT_BYTES_MAX)
        if unpacking.unconsumed_tail or sum(map(plain.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise OverlayError("a document of an era that is too large")
        parsed = json.loads(plain)
    except (zlib.error, ValueError, RecursionError) as error:
        raise OverlayError(f"a document of an era cannot be read: {error}") from None
    if not isinstance(parsed, dict):
        raise OverlayError("a document of an era is no object")
    return Overlay.load(parsed, time_ms, owner)


def following(before: Overlay | None, after: Overlay, now: float) -> Overlay:
    """Returns an era's overlay at a member adopting now, after the era before."""
    if before is None:
        return after.at(now)
    if after.policy.version == before.policy.version:
        return before.hears(after.swap_news, now).endorsed(after.endorsements, now).at(now)
    return after.following(before, now)
