"""Rights and members a version takes away at once, although it takes effect only after a restart.

A newer version with another issuer or calendar cannot come into force while a node runs. Members that it shuts out
are not served meanwhile: the version in force goes on with the members and rights that both versions have. Not here:
which versions these are (`membership.adopting`).
"""

from __future__ import annotations

import copy
from dataclasses import replace

from bridge.document.overlay import Overlay
from keys.grants import Grant
from keys.identity import Role


def narrowed(old: Overlay, newer: Overlay) -> Overlay:
    """Returns `old` without gateways and jobs that `newer` lacks, and with only the rights that both have.

    Replicas and key servers stay: views and the issuer are those of `old`.
    """
    clients = (Role.GATEWAY, Role.INGEST)
    members = {
        name: member
        for name, member in old.members.items()
        if member.certificate.role not in clients or name in newer.members
    }
    made = copy.copy(old)
    made.members = members
    made.by_party = {c.party_id: c for member in members.values() for c in member.certificates}
    made.set_grants([both for grant in old.policy.grants for both in _both(grant, newer)])
    return made


def _both(grant: Grant, newer: Overlay) -> list[Grant]:
    """Returns the parts of a grant that `newer` has too, and no longer than there."""
    same = [other for other in newer.grants_of(grant.member) if other.filter == grant.filter]
    left = [
        replace(grant, rights=grant.rights & other.rights, last_epoch=min(grant.last_epoch, other.last_epoch))
        for other in same
    ]
    return [each for each in left if each.rights and each.first_epoch <= each.last_epoch]
