"""Into which chains the records of an entry go now, and which of them may go.

A stored batch is of one scope, as scopes were when it was stored. The owner may have taken that out, divided it or put
a narrower one inside, and our rights may have ended for some topics. Then the batch goes in parts, each of records that
one scope takes and that may go, or may not: those wait alone. What was sealed stays in its scope as long as that is in
the policy. Once that is gone, or some of its records may not go any more, so does what replicas may have: but not of
QoS 2, since readers may have got it, and know no record by its number in another scope; all of that waits. Not here:
the parts in memory and on disk (`cutting`), waiting and giving up (`publisher`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Numbered, Publication, unpacked
from bridge.document import RegionView, Scope, ScopeSecret
from bridge.publisher.handing_over import has_enough
from bridge.publisher.sealing import Entry, Sealer
from keys.envelope import Mode

Part: TypeAlias = tuple[ScopeSecret, Sequence[Numbered]]


def nowhere(publication: Publication, plain: bool) -> ScopeSecret:
    """Stands for the scope of what was stored by one that is gone. `plain`: it was so. The owner names none like it."""
    return ScopeSecret(Scope("", Mode.PLAIN if plain else Mode.COPIES), publication.topic)


def home_of(sealer: Sealer, was_plain: Callable[[str], bool], is_late: bool, publication: Publication) -> ScopeSecret:
    """The scope by which it was stored; its topics may be others' now. What a sealed one took goes never in clear: it
    waits until its scope is sealed again. So does what was left on disk (`is_late`) and does not say what took it."""
    secret, in_clear = sealer.secret_of(publication), publication.in_clear
    if secret is None:  # the configuration changed while it lay on disk
        return nowhere(publication, was_plain(publication.topic) if in_clear is None else in_clear)
    if secret.scope.mode is not Mode.PLAIN or in_clear or (in_clear is None and not is_late):
        return secret
    return replace(secret, scope=replace(secret.scope, mode=Mode.COPIES))


def parts_of(entry: Entry, sealer: Sealer, now: float) -> list[Part]:
    """What is to stand in place of an entry that is not sealed; it alone, if that has not changed."""
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
        may_go = sealer.rights.record(secret, each.publication.topic, now)
        parts.setdefault((secret.scope.filter, may_go), (secret, []))[1].append(each)
    found: list[Part] = list(parts.values())
    return alone if len(found) == 1 and found[0][0] is before else found


def homeless(entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, now: float) -> list[int]:
    """What is sealed in a scope that is gone, or with a record that may not go any more, and too few have: replicas and
    readers would refuse it, and suspect us."""
    sealed = [e for e in entries.values() if e.wire is not None and not (e.is_snapshot or e.is_void)]
    lacked = [e for e in sealed if not has_enough(e, view)]
    return [e.sequence for e in lacked if not sealer.rights.whole(e.secret, e.publication, now, began=True)]
