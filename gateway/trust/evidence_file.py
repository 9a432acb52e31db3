"""Evidence as files: kept by the member that found it, checked by anybody (docs/protocol.md §13).

A member keeps evidence in `evidence/` beside its identity. Not here: what is evidence (`bridge.document.evidence`).
"""

from __future__ import annotations

import json
from pathlib import Path

from bridge.document import Contradiction, NotProvedError, Overlay, OverlayError, ProvenLie, of_overlays
from bridge.document.evidence import OWNER
from bridge.receipts import DeliveryProof, ProvenDelivery
from gateway.base import PrivateFileError
from gateway.files import write_public
from gateway.trust.domains import read_public
from gateway.trust.overlay_file import MAX_OVERLAY_BYTES, read_document
from keys.identity import party_id_of

DIRECTORY = "evidence"
FILES_MAX = 1_000  # a member that rotates and lies again and again fills no disk
EVIDENCE_BYTES_MAX = 2 * MAX_OVERLAY_BYTES  # two policies of an overlay that is as large as can be


def keep_evidence(identity: Path, evidence: Contradiction, proven: ProvenLie) -> Path | None:
    """Writes evidence into the directory of an identity, and returns its path. Returns None if there is evidence of
    this lie by this key, or as many files as may be. Raises OSError.
    """
    directory = identity / DIRECTORY
    directory.mkdir(exist_ok=True)
    author = "owner" if proven.author == OWNER else proven.author  # a member's name is a file name as it is
    path = directory / f"{proven.lie}-{author}-{party_id_of(proven.key).hex()}.json"
    if path.exists() or sum(1 for _ in directory.iterdir()) >= FILES_MAX:
        return None
    try:
        write_evidence(path, evidence)
    except PrivateFileError as error:
        raise OSError(str(error)) from None
    return path


def write_evidence(path: Path, evidence: Contradiction) -> None:
    """Writes evidence as a file that everybody may read. Raises PrivateFileError."""
    write_public(path, json.dumps(evidence.to_document(), indent=1).encode() + b"\n")


def compared(mine: Overlay, theirs: Path) -> Contradiction | None:
    """Returns the evidence that an overlay's owner signed another document of its version; None if the other file is
    of another version or says the same. Raises TrustError, OverlayError.
    """
    other = Overlay.policy_of(read_document(theirs), mine.owner)
    made = of_overlays(mine.owner, mine.policy, other)
    try:
        made.check_proof()
    except NotProvedError:
        return None
    return made


def check_evidence(path: Path) -> ProvenLie | ProvenDelivery:
    """Returns the lie or the delivery that a file proves. Raises TrustError, NotProvedError, each with the path."""
    content = read_public(path, EVIDENCE_BYTES_MAX)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise NotProvedError(f"{path}: is not JSON; ask for the file again") from None
    if not isinstance(document, dict):
        raise NotProvedError(f"{path}: is no evidence; ask for the right file")
    try:
        if "veilmq_delivery" in document:
            return DeliveryProof.from_document(document).check_proof()
        return Contradiction.from_document(document).check_proof()
    except NotProvedError as error:
        raise NotProvedError(f"{path}: {error}") from None


def write_proof(path: Path, proof: DeliveryProof) -> None:
    """Writes a proof of delivery as a file that everybody may read. Raises PrivateFileError."""
    write_public(path, json.dumps(proof.to_document(), indent=1).encode() + b"\n")


def standing(proven: ProvenLie | ProvenDelivery, overlay: Overlay) -> list[str]:
    """Returns a line on the place of each author in an overlay. Raises OverlayError if the overlay is of another
    owner.
    """
    if proven.owner != overlay.owner:
        raise OverlayError(
            "the file is of another owner than the overlay, who may have invented its author; "
            "take the overlay in which the author is a member"
        )
    if isinstance(proven, ProvenDelivery):
        return [
            f"publisher's key: {_place(proven.publisher, proven.publisher_key, overlay)}",
            f"reader's key: {_place(proven.reader, proven.reader_key, overlay)}",
        ]
    return [_place(proven.author, proven.key, overlay)]


def _place(name: str, key: bytes, overlay: Overlay) -> str:
    if key == overlay.owner:
        return "the author is the owner of this overlay"
    certificate = overlay.by_party.get(party_id_of(key))
    if certificate is None:
        said = f"no member of version {overlay.policy.version} has this key: it left, or has another key by now"
        is_named = name in overlay.members  # maybe somebody else, who took a name that was free
        return (
            f"{said}. The {name} of this version has another key, against which this proves nothing"
            if is_named
            else said
        )
    if overlay.certificate(certificate.name).public_key != key:
        return f"it is a former key of {certificate.name}: if it was stolen, the thief may have signed both"
    return f"it is the present key of {certificate.name}, a {certificate.role} of domain {certificate.domain}"
