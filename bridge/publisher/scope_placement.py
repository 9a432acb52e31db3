"""Placing of an entry's records into present scopes, and choice of the records that may go.

A stored batch belongs to a scope of its time. The owner may since have removed or divided the scope or put a narrower
one inside, and rights may have ended for some topics. Then the batch goes in parts: each holds records of a scope
that all may go, or all may not; the latter wait alone. A sealed batch stays in its scope while the policy has the
scope. Once the scope is gone, or some records may not go any more, the batch is placed again even if replicas may have
it. A QoS 2 batch waits instead: readers may have it, and know no record by its number in another scope. `cutting` has
the parts in memory and on disk, `publisher` waits and gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Numbered, Publication, unpacked
from bridge.document import RegionView, Scope, ScopeSecret
from bridge.publisher.entry import Entry, has_enough
from bridge.publisher.sealing import Sealer
from keys.envelope import Mode

Part: TypeAlias = tuple[ScopeSecret, Sequence[Numbered]]


def nowhere(publication: Publication, plain: bool) -> ScopeSecret:
    """Returns a stand-in for a scope that is gone; `plain` if that scope was plain. The owner names no scope like
    it.
    """
    return ScopeSecret(Scope("", Mode.PLAIN if plain else Mode.COPIES), publication.topic)


def home_of(sealer: Sealer, was_plain: Callable[[str], bool], is_late: bool, publication: Publication) -> ScopeSecret:
    """Returns the scope by which a publication was stored; its topics may belong to others now. Records of a sealed
    scope never go in clear: they wait until the scope is sealed again. So do entries left on disk (`is_late`) that do
    not name the kind of their scope.
    """
    secret, in_clear = sealer.secret_of(publication), publication.in_clear
    if secret is None:  # the configuration changed while it lay on disk
        return nowhere(publication, was_plain(publication.topic) if in_clear is None else in_clear)
    if secret.scope.mode is not Mode.PLAIN or in_clear or (in_clear is None and not is_late):
        return secret
    return replace(secret, scope=replace(secret.scope, mode=Mode.COPIES))


def parts_of(entry: Entry, sealer: Sealer, now: float) -> list[Part]:
    """Returns the parts replacing an unsealed entry; only the entry's own if its place has not changed."""
    of, before = entry.publication, entry.secret
    alone: list[Part] = [(before, ())]
    if entry.is_void or entry.is_snapshot or (entry.was_sealed and of.qos == 2):
        return alone
    if (entry.was_sealed or sealer.secret_of(of) is before) and sealer.rights.whole(
        before, of, now, began=entry.was_sealed
    ):
        return alone
    records = [Numbered(entry.sequence, of)]
    if of.records:
        records = [each for each in unpacked(of.payload, entry.sequence) if isinstance(each, Numbered)]
    parts: dict[tuple[str, bool], tuple[ScopeSecret, list[Numbered]]] = {}
    for each in records:
        secret = sealer.secret_for(each.publication.topic)
        if secret is None or (secret.scope.mode is Mode.PLAIN and before.scope.mode is not Mode.PLAIN):
            secret = before  # it waits under what it was committed for: what was protected goes never in clear
        may_go = sealer.rights.may_hold_record(secret, each.publication.topic, now)
        parts.setdefault((secret.scope.filter, may_go), (secret, []))[1].append(each)
    found: list[Part] = list(parts.values())
    return alone if len(found) == 1 and found[0][0] is before else found


def homeless(entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, now: float) -> list[int]:
    """Returns entries that too few replicas have, and whose scope is gone or which hold a record without right:
    replicas and readers would refuse them, and suspect this member.
    """
    sealed = [e for e in entries.values() if e.wire is not None and not (e.is_snapshot or e.is_void)]
    lacked = [e for e in sealed if not has_enough(e, view)]
    return [e.sequence for e in lacked if not sealer.rights.whole(e.secret, e.publication, now, began=True)]
