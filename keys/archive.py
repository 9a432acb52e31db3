"""The archive of an ended epoch: a key server's outputs, sealed to each reader of that epoch (docs/protocol.md §6.5).

    archive   opening(3: version, kind 17, flags 0)  epoch(4)  count(4), each: party(16)  length(4) and box, ascending

Each box holds `outputs` (see `requests`). Once the server has erased the subkeys of the epoch, it can neither open a
box nor make one again: a later member, or an intruder at the server, finds nothing to use. A reader opens its box
with
the key pair of that epoch; after a rotation it needs the former key pair.

Not here: when epochs end and how long archives are kept (`issuing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from keys import frames
from keys.errors import BadFrame
from keys.identity import PARTY_ID_BYTES, Certificate
from keys.requests import Outputs, encode_outputs
from keys.sealedbox import AGREEMENT_KEY_BYTES, seal_box


def make_archive(
    server: str,
    epoch: int,
    readers: Iterable[tuple[Certificate, Sequence[Outputs]]],
    random: Callable[[int], bytes],
) -> bytes:
    """Returns the encoded archive of an epoch.

    `readers`: each reader's certificate and all outputs that it may read in that epoch. `random(n)`: n random secret
    bytes.
    """
    boxes = {
        certificate.party_id: seal_box(
            certificate.agreement_key,
            encode_outputs(outputs),
            archive_info(server, certificate.party_id, epoch),
            random(AGREEMENT_KEY_BYTES),
        )
        for certificate, outputs in readers
    }
    parts = [frames.opening(frames.Kind.KEY_ARCHIVE), frames.number(epoch, 4), frames.number(len(boxes), 4)]
    for party, box in sorted(boxes.items()):
        parts += [party, frames.number(len(box), 4), box]
    return b"".join(parts)


def find_box(archive: bytes, party: bytes) -> bytes | None:
    """Returns the box of a reader, None if it has none. Raises `BadFrame` if the bytes up to there are no archive."""
    reader = frames.Reader(archive)
    reader.opening(frames.Kind.KEY_ARCHIVE)
    reader.take_bytes(4)
    before = b""
    for _ in range(reader.number(4)):
        owner, box = reader.take_bytes(PARTY_ID_BYTES), reader.take_bytes(reader.number(4))
        if owner <= before:
            raise BadFrame("an archive out of order")
        if owner == party:
            return box
        before = owner
    reader.expect_end()
    return None


def archive_info(server: str, party: bytes, epoch: int) -> bytes:
    """Returns the context an archived box is bound to: server, reader and epoch."""
    return b"veilmq/1 key archive" + frames.text(server) + party + frames.number(epoch, 4)
