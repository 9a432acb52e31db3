"""Late forms: given up and written as incomplete, but possibly whole later; kept in memory, within bounds.

Pure. Not here: when a form is given up, and the fate of one that becomes whole (`collector`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from spark_ingest.receiving.sealings import Form

LATE_KEPT = 4_096
"""Incomplete publications that stay in memory, waiting for missing parts."""
LATE_BYTES = 64 << 20
"""Bytes of their content, headers and topics: a publication may be as large as a packet."""


class Late:
    """The late forms, oldest first; the oldest goes when there are too many, or too large ones."""

    def __init__(self) -> None:
        self._forms: OrderedDict[int, tuple[Form, int]] = OrderedDict()  # and its size in bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._forms)

    def __iter__(self) -> Iterator[Form]:
        return (form for form, _ in self._forms.values())

    def keep_form(self, form: Form) -> list[Form]:
        """Keeps a new form, or one that has grown; returns the forms that went for it, perhaps itself."""
        self.drop_form(form)
        size = len(form.content or b"") + len(form.admitted.frame) + len(form.told[0]) + len(form.topic)
        self._forms[id(form)] = (form, size)
        self._bytes += size
        gone = []
        while len(self._forms) > LATE_KEPT or self._bytes > LATE_BYTES:
            oldest, _ = next(iter(self._forms.values()))
            self.drop_form(oldest)
            gone.append(oldest)
        return gone

    def drop_form(self, form: Form) -> bool:
        """Drops a form that is not late any more. Returns False if it was not late."""
        _, size = self._forms.pop(id(form), (None, -1))
        if size < 0:
            return False
        self._bytes -= size
        return True
