"""The key of a pack: sealed so that its reader could have opened every row in it.

A pack is sealed under a random key of its own (`spool.packs`). That key is sealed under a combination of all keys of
the segment: those of its scopes and epochs, and the local keys of its shares:

    KEK  = HKDF-SHA256(local keys by tag ‖ epoch keys by name, zeros for a scope without, salt = "veilmq/1 pack")
    slot = nonce(12) ‖ AES-256-GCM(KEK, key, associated data: table of the pack)

So a file of scope keys lacking one of them opens no pack. Its reader uses the segment, which opens as far as the keys
reach. Not here: the content of a pack (`opening.packing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from keys.envelope import KeyName
from keys.epochs import KEY_BYTES
from spark_ingest.errors import GrantsError, SpoolDamaged
from spark_ingest.secrets.grants import Grants
from spark_ingest.secrets.sharebox import NONCE_BYTES, key_tag
from spark_ingest.spool import ANEW, PackFile

_SALT = b"veilmq/1 pack"
_NO_KEY = bytes(KEY_BYTES)


def seal_pack_key(
    grants: Grants, names: Sequence[KeyName], tags: Sequence[bytes], key: bytes, table: bytes, nonce: bytes
) -> bytes:
    """Returns the key slot of a pack with this table. Raises GrantsError when one of the keys is not ours, or there is
    none.
    """
    sealing = _sealing_key(grants, names, tags)
    if sealing is None:
        raise GrantsError("the file of scope keys lacks a key of what is to be packed; name the one of its receiver")
    return nonce + AESGCM(sealing).encrypt(nonce, key, table)


def pack_key(grants: Grants, pack: PackFile) -> bytes | None:
    """Returns the key of a pack, None if it was erased or is not for us. Raises SpoolDamaged for an altered pack."""
    names = [KeyName(*each) for each in pack.table.keys]
    sealing = _sealing_key(grants, names, [bytes.fromhex(tag) for tag in pack.table.tags])
    if sealing is None or pack.slot is None:
        return None
    try:
        return AESGCM(sealing).decrypt(pack.slot[:NONCE_BYTES], pack.slot[NONCE_BYTES:], pack.head)
    except InvalidTag:
        raise SpoolDamaged(f"{pack.path} was altered, or is of a spool with other keys; {ANEW}") from None


def local_tags(grants: Grants) -> tuple[bytes, ...]:
    """Returns the tag of the local key under which a pack is sealed whose segment has none."""
    return tuple(map(key_tag, grants.spool_keys[:1]))


def _sealing_key(grants: Grants, names: Sequence[KeyName], tags: Sequence[bytes]) -> bytes | None:
    local = {key_tag(key): key for key in grants.spool_keys}
    found: list[bytes | None] = [local.get(tag) for tag in sorted(tags)]
    for name in sorted(names):
        scope = grants.scopes.get(name.scope)
        found.append(None if scope is None else scope.keys.get(name) if scope.keyed else _NO_KEY)
    material = b"".join(key for key in found if key is not None)
    if None in found or not material.strip(b"\0"):
        return None
    return HKDF(SHA256(), KEY_BYTES, _SALT, _info(names, tags)).derive(material)


def _info(names: Sequence[KeyName], tags: Sequence[bytes]) -> bytes:
    return b"|".join([*sorted(tags), *(repr(tuple(name)).encode() for name in sorted(names))])
