"""The hand-over: names and token keys of a member's scopes, from the owner, sealed to that member in the overlay file.

    inside the box: opening(3: version, kind 12, flags 0)  count(2), each: wire filter: text  clear filter: text
                    token key: bytes (0 or 32)  keys: count(2), each epoch(4) bump(2) key(32)

Everybody may see the file; only the member opens its box, which is bound to the overlay's name and the member's.
Where
a key service issues keys, `keys` is empty; without one the owner issues them here, anew with each bump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from keys import frames
from keys.epochs import KEY_BYTES, KeyName
from keys.errors import BadFrame, OurFault
from keys.identity import Identity
from keys.sealedbox import seal_box

SCOPES_MAX = 1024  # of one member
KEYS_MAX = 1024  # of one scope


@dataclass(frozen=True, slots=True)
class ScopeGrant:
    """A scope as its member knows it. `keys`: those the owner issues itself, by (epoch, bump)."""

    wire_filter: str
    clear_filter: str
    token_key: bytes | None = field(default=None, repr=False)
    keys: tuple[tuple[KeyName, bytes], ...] = field(default=(), repr=False)


def seal_grants(
    overlay: str, member: str, agreement_key: bytes, grants: Sequence[ScopeGrant], ephemeral: bytes
) -> bytes:
    """Returns the box for a member. `ephemeral`: 32 random secret bytes. Raises `OurFault` for values that do not
    fit.
    """
    if len(grants) > SCOPES_MAX or any(len(grant.keys) > KEYS_MAX for grant in grants):
        raise OurFault(f"a member gets at most {SCOPES_MAX} scopes with {KEYS_MAX} keys each")
    parts = [frames.opening(frames.Kind.SEALED_GRANT), frames.number(len(grants), 2)]
    for grant in grants:
        parts += [frames.text(grant.wire_filter), frames.text(grant.clear_filter)]
        parts += [frames.sized(grant.token_key or b""), frames.number(len(grant.keys), 2)]
        for name, key in grant.keys:
            parts += [frames.number(name.epoch, 4), frames.number(name.bump, 2), key]
    return seal_box(agreement_key, b"".join(parts), _info(overlay, member), ephemeral)


def open_grants(overlay: str, member: str, identity: Identity, box: bytes) -> list[ScopeGrant]:
    """Returns the scopes in our box; an empty box holds none. Raises `BadContent`, `BadFrame`."""
    if not box:
        return []
    reader = frames.Reader(identity.open_box(box, _info(overlay, member)))
    reader.opening(frames.Kind.SEALED_GRANT)
    count = reader.number(2)
    if count > SCOPES_MAX:
        raise BadFrame(f"a box of {count} scopes")
    grants = [_read(reader) for _ in range(count)]
    reader.expect_end()
    return grants


def _read(reader: frames.Reader) -> ScopeGrant:
    wire_filter, clear_filter, token_key = reader.text(), reader.text(), reader.sized()
    if len(token_key) not in (0, KEY_BYTES):
        raise BadFrame(f"a token key of {len(token_key)} bytes")
    count = reader.number(2)
    if count > KEYS_MAX:
        raise BadFrame(f"a scope of {count} keys")
    keys = tuple(
        (KeyName(wire_filter, reader.number(4), reader.number(2)), reader.take_bytes(KEY_BYTES)) for _ in range(count)
    )
    return ScopeGrant(wire_filter, clear_filter, token_key or None, keys)


def _info(overlay: str, member: str) -> bytes:
    return b"veilmq/1 handover" + frames.text(overlay) + frames.text(member)
