"""Whether a version of the overlay has a use for somebody, and whether it can count while we run."""

from __future__ import annotations

from bridge.document import Overlay
from keys.identity import Role


def serves(overlay: Overlay, name: str) -> bool:
    """Whether it is a member and, if a replica, in a view that is open or to come."""
    member = overlay.members.get(name)
    if member is None or member.certificate.role is not Role.REPLICA:
        return member is not None
    return name in overlay.replicas(member.certificate.region)


def place_of(overlay: Overlay, name: str) -> tuple[object, object]:
    """Role and region of a member."""
    certificate = overlay.certificate(name)
    return certificate.role, certificate.region


def moved(overlay: Overlay, name: str, place: tuple[object, object]) -> bool:
    """Whether it lists us in another role or region."""
    return name in overlay.members and place_of(overlay, name) != place


def same_epochs(old: Overlay, new: Overlay) -> bool:
    """Whether the issuer and the numbering of epochs are the same."""

    def epochs(overlay: Overlay) -> tuple[object, ...]:
        policy = overlay.policy
        return policy.overlay, policy.issuer, policy.calendar.zero_ms, policy.calendar.length_s

    return epochs(old) == epochs(new)
