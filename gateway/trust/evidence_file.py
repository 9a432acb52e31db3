"""Evidence as files: kept by the member that found it, checked by anybody (docs/protocol.md §13).

A member keeps evidence in `evidence/` beside its identity. Not here: what is evidence (`bridge.document.evidence`).
"""

from __future__ import annotations

import json
from pathlib import Path

from bridge.document import Contradiction, NotProvedError, Overlay, OverlayError, ProvenLie, of_overlays
from bridge.document.evidence import OWNER
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
    write_evidence(path, evidence)
    return path


def write_evidence(path: Path, evidence: Contradiction) -> None:
    """Writes evidence as a file that everybody may read. Raises OSError."""
    try:
        write_public(path, json.dumps(evidence.to_document(), indent=1).encode() + b"\n")
    except PrivateFileError as error:
        raise OSError(str(error)) from None


def compared(mine: Overlay, theirs: Path) -> Contradiction | None:
    """Returns the evidence that an overlay's owner signed another document of its version; None if the other file is
    of another version or says the same. Raises TrustError, OverlayError.
    """
    other = Overlay.policy_of(read_document(theirs), mine.owner)
    made = of_overlays(mine.owner, mine.policy, other)
    try:
        made.check()
    except NotProvedError:
        return None
    return made


def check_evidence(path: Path) -> ProvenLie:
    """Returns the lie that a file of evidence proves. Raises TrustError, NotProvedError, each with the path."""
    content = read_public(path, EVIDENCE_BYTES_MAX)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise NotProvedError(f"{path}: is not JSON; ask for the file again") from None
    if not isinstance(document, dict):
        raise NotProvedError(f"{path}: is no evidence; ask for the right file")
    try:
        return Contradiction.of(document).check()
    except NotProvedError as error:
        raise NotProvedError(f"{path}: {error}") from None


def standing(proven: ProvenLie, overlay: Overlay) -> str:
    """Returns a line on the author's place in an overlay. Raises OverlayError if the overlay is of another owner."""
    if proven.owner != overlay.owner:
        raise OverlayError(
            "the evidence is of another owner than the overlay, who may have invented its author; "
            "take the overlay in which the author is a member"
        )
    if proven.key == overlay.owner:
        return "the author is the owner of this overlay"
    certificate = overlay.by_party.get(party_id_of(proven.key))
    if certificate is None:
        said = f"no member of version {overlay.policy.version} has this key: it left, or has another key by now"
        is_named = proven.author in overlay.members  # maybe somebody else, who took a name that was free
        return (
            f"{said}. The {proven.author} of this version has another key, against which this proves nothing"
            if (is_named)
            else said
        )
    if overlay.certificate(certificate.name).public_key != proven.key:
        return f"it is a former key of {certificate.name}: if it was stolen, the thief may have signed both"
    return f"it is the present key of {certificate.name}, a {certificate.role} of domain {certificate.domain}"
