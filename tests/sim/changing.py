"""Views that change while a world runs: the owner's side of attaching and detaching, for tests."""

from __future__ import annotations

from dataclasses import replace

from bridge.document.overlay import Endorsement, Member, Overlay, RegionView
from bridge.document.trees import Edge
from keys.identity import Certificate, Identity, Role
from tests.sim.world import NOT_AFTER_MS, World


def card(world: World, name: str, region: int) -> Member:
    """A replica's certificate, made once, and its identity."""
    assert world.owner is not None
    identity = world.identities.setdefault(name, Identity.generate(f"{world.seed} {name}".encode().ljust(32)[:32]))
    certificate = Certificate.issue(
        world.owner,
        name=name,
        role=Role.REPLICA,
        public_key=identity.public_bytes,
        agreement_key=identity.agreement_bytes,
        domain=f"domain-{name}",
        region=region,
        not_after_ms=NOT_AFTER_MS,
    )
    return Member(certificate)


def changed(
    world: World, old: Overlay, region: int, members: tuple[str, ...], now: float, grace_s: int = 60, **policy: object
) -> Overlay:
    """The next version after `old`, in which the region has these members. Members of no view left are dropped."""
    assert world.owner is not None
    views = {r: replace(v, former=None) if over(v, now) else v for r, v in old.latest.items()}
    views[region] = views[region].successor(members, int(now * 1000), grace_s)
    listed = {name for view in views.values() for name in (*view.members, *(view.former or view).members)}
    kept = {n: m for n, m in old.members.items() if m.certificate.role is not Role.REPLICA or n in listed}
    kept |= {name: card(world, name, region) for name in members if name not in kept}
    newer = replace(old.policy, version=old.policy.version + 1, **policy)  # type: ignore[arg-type]
    return Overlay.sign(world.owner, newer, views.values(), kept.values(), old.endorsements)


def regrown(
    world: World, old: Overlay, edges: tuple[Edge, ...], now: float, settle_s: int = 2, grace_s: int = 5,
    without: int | None = None, **policy: object,
) -> Overlay:  # fmt: skip
    """The next version after `old`, in which regions are joined by these edges; one of them may be gone."""
    assert world.owner is not None
    tree = old.policy.tree.followed_by(old.policy.edges, int(now * 1000), settle_s, grace_s)
    changes = {"version": old.policy.version + 1, "edges": edges, "tree": tree} | policy
    views = [replace(v, former=None) if over(v, now) else v for r, v in old.latest.items() if r != without]
    kept = [member for member in old.members.values() if member.certificate.region != without]
    newer = replace(old.policy, **changes)  # type: ignore[arg-type]
    return Overlay.sign(world.owner, newer, views, kept, old.endorsements)


def over(view: RegionView, now: float) -> bool:
    return view.since_ms / 1000 + view.grace_s < now


def endorsed_by(world: World, overlay: Overlay, region: int, *names: str) -> list[Endorsement]:
    return [Endorsement.sign_view(overlay.latest[region], name, world.identities[name]) for name in names]
