"""A file of scope keys on its way to other machines: sealed to an identity, or not sent at all."""

from __future__ import annotations

import json
from pathlib import Path

from spark_ingest.errors import GrantsError
from spark_ingest.secrets import GRANTS_BYTES_MAX


def sealed_keys(path: Path) -> bytes:
    """Returns the content of a file of scope keys that only its identity opens. Raises GrantsError for any other
    file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(GRANTS_BYTES_MAX + 1)
        sealed = len(content) <= GRANTS_BYTES_MAX and set(json.loads(content)) == {"veilmq_grant", "box"}
    except OSError as error:
        raise GrantsError(f"grants={path}: {error.strerror}; start the receiver, which writes it") from None
    except (ValueError, TypeError, RecursionError):
        sealed = False
    if not sealed:
        raise GrantsError(
            f"grants={path} is not sealed to an identity, so it stays on this machine; give the receiver "
            "grants_identity, and let it start anew"
        )
    return content
