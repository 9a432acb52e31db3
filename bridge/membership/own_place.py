"""The standing of a member in a version of the overlay, and the changes needing a restart to count."""

from __future__ import annotations

from bridge.document import Overlay
from keys.identity import Role


def serves(overlay: Overlay, name: str) -> bool:
    """Returns True for a listed member; for a replica, only if a view that is open or to come lists it."""
    member = overlay.members.get(name)
    if member is None or member.certificate.role is not Role.REPLICA:
        return member is not None
    return name in overlay.replicas(member.certificate.region)


def place_of(overlay: Overlay, name: str) -> tuple[object, object]:
    """Returns the role and region of a member."""
    certificate = overlay.certificate(name)
    return certificate.role, certificate.region


def moved(overlay: Overlay, name: str, place: tuple[object, object]) -> bool:
    """Returns True if the overlay lists the member in another role or region than `place`."""
    return name in overlay.members and place_of(overlay, name) != place


def same_epochs(old: Overlay, new: Overlay) -> bool:
    """Returns True if both versions have the same issuer and numbering of epochs."""

    def epochs(overlay: Overlay) -> tuple[object, ...]:
        policy = overlay.policy
        return policy.issuer, policy.calendar.zero_ms, policy.calendar.length_s

    return epochs(old) == epochs(new)
