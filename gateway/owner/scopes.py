"""The policy's scopes from the description: wire filters, numbers, retiring scopes, and forbidden changes.

Members accept a publication only under the protection that its scope has in their version: sealed, `shares_only` or
plain. Publications under another protection may wait for hours in outboxes and sessions, and would be refused after
they were acknowledged. So a protection changes only if the owner confirms no publication waits; in a scope with hidden
names also with new tokens, since the previous scope then retires unchanged. Not here: rights and keys in scopes
(`rights`, `signing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bridge.document import Batching, History, Overlay, Protection, Refresh, Scope
from gateway.owner.cards import SignOptions
from gateway.owner.description import Description, HistoryEntry, ScopeEntry, region_id
from gateway.owner.record import KnownScope, OwnerRecord
from gateway.trust import TrustError
from keys.envelope import Mode
from keys.epochs import token_key
from keys.topictokens import tokenise_filter


def scopes_of(
    wanted: Description,
    ids: dict[str, int],
    record: OwnerRecord,
    root: bytes,
    previous: Overlay | None,
    options: SignOptions,
) -> list[Scope]:
    """Returns the policy's scopes and updates their names in the record.

    The previous generation of tokens stays while it retires. Raises TrustError.
    """
    if options.new_tokens:
        if record.retiring is not None:
            raise TrustError("the tokens of before are still read; sign with --drop-retiring first")
        if not any(entry.tokens for entry in wanted.scopes):
            raise TrustError("no scope hides names; --new-tokens has nothing to renew")
        record.retiring, record.generation = record.generation, record.generation + 1
    if options.drop_retiring:
        if record.retiring is None:
            raise TrustError("no scope is retiring; leave --drop-retiring out")
        record.retiring = None
    generations = [(record.generation, False)]
    if record.retiring is not None:
        generations.append((record.retiring, True))
    if previous is not None:
        record.protections.update({scope.filter: scope.protection for scope in previous.policy.scopes})
    known: dict[str, KnownScope] = {}
    scopes: list[Scope] = []
    for generation, retiring in generations:
        for entry in wanted.scopes:
            if retiring and not entry.tokens:
                continue
            tokens = token_key(root, generation)
            wire = tokenise_filter(entry.filter, tokens) if entry.tokens else entry.filter
            if wire in known:
                raise TrustError(f"scope {entry.filter} is listed twice; list it once")
            known[wire] = KnownScope(wire, entry.filter, generation if entry.tokens else None)
            regions = tuple(sorted(region_id(ids, name, f"scope {entry.filter}") for name in entry.regions))
            mode = Mode[entry.mode.upper()]
            scope = _scope(wire, entry, mode, regions, retiring)
            scope = replace(scope, receipts=entry.receipts)
            if entry.history is not None:
                scope = replace(scope, history=_history(entry.filter, entry.history, ids))
            scope = replace(scope, number=record.number_of(wire), origin=record.origin_of(known[wire]))
            before = previous.scope_named(wire) if previous is not None else None
            if retiring and before is not None and before.protection is not scope.protection:
                scope = replace(scope, mode=before.mode, shares_only=before.shares_only)
            scopes.append(scope)
    record.scopes = known
    if not options.drained:
        _check_protection(scopes, record.protections, known)
    return scopes


def _scope(wire: str, entry: ScopeEntry, mode: Mode, regions: tuple[int, ...], retiring: bool) -> Scope:
    on_topic = entry.keys == "topic"
    refresh = Refresh(entry.refresh.messages, entry.refresh.bytes, entry.refresh.seconds)
    scope = Scope(wire, mode, regions, entry.tokens, entry.shares_only, 0, retiring, on_topic, refresh)
    batch = Batching(entry.batch.records, entry.batch.bytes, entry.batch.linger_ms)
    return replace(scope, shown=entry.shown_attributes, planes=entry.route == "planes", batch=batch)


def _history(clear: str, entry: HistoryEntry, ids: dict[str, int]) -> History:
    regions = {region_id(ids, name, f"history of scope {clear}") for name in entry.regions}
    return History(entry.days, round(entry.gigabytes * 1000), tuple(sorted(regions)))


def _check_protection(
    scopes: Iterable[Scope], before: Mapping[str, Protection], known: Mapping[str, KnownScope]
) -> None:
    """Raises TrustError for a scope with another protection than in the last signed version."""
    for scope in scopes:
        was = before.get(scope.filter, scope.protection)
        if was is not scope.protection:
            raise TrustError(
                f"scope {known[scope.filter].clear} was {was} and would be {scope.protection}, so that "
                "what waits anywhere would be refused; list a scope with a filter of its own instead"
                + (", or sign with --new-tokens" if scope.tokens else "")
                + ", or sign with --drained once nobody publishes in it and nothing waits"
            )
