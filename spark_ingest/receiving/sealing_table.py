"""The table of forms in memory: by their header, and by publication while one of them may become its row.

Pure. Not here: what a form waits for and when it ends (`collector`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from spark_ingest.receiving.sealings import WHOLE, Form, State

VARIANTS_MAX = 4
"""Differently sealed forms of one publication that may wait: re-sealing is honest, but not without end."""
DONE_KEPT = 16_384
"""Headers of written publications that are recognised without verifying the same signature again."""


class FormTable:
    """A table of forms: sealings of publications, of which pieces came. A form is live from its first piece until it is
    on disk, and is known for a while afterwards.
    """

    def __init__(self) -> None:
        self.told: dict[tuple[str, str], Form] = {}
        """By property `vmq` and wire topic."""
        self._done: deque[tuple[str, str]] = deque()
        self._live: dict[tuple[bytes, int], list[Form]] = {}  # waiting, ready or being written

    def forms_of(self, publication: tuple[bytes, int]) -> Sequence[Form]:
        """Returns the live forms of a publication."""
        return self._live.get(publication, ())

    def add_form(self, form: Form) -> None:
        """Adds a new form, live."""
        self.told[form.told] = form
        self.join(form)

    def join(self, form: Form) -> None:
        """Makes a form live, perhaps again."""
        forms = self._live.get(form.publication)
        if forms is None:
            self._live[form.publication] = [form]
        elif form not in forms:
            forms.append(form)

    def leave_live(self, form: Form) -> None:
        """Makes a form not live any more."""
        forms = self._live.get(form.publication)
        if forms is not None and form in forms:
            forms.remove(form)
            if not forms:
                del self._live[form.publication]

    def end_form(self, form: Form) -> None:
        """Ends a form, which is still recognised for a while."""
        form.state = State.DONE
        form.content = form.material = None
        self.leave_live(form)
        self._done.append(form.told)

    def forget_ended(self) -> None:
        """Forgets the oldest ended forms."""
        while len(self._done) > DONE_KEPT:
            told = self._done.popleft()
            known = self.told.get(told)
            if known is not None and known.state is State.DONE:
                del self.told[told]

    def other_whole(self, form: Form) -> Form | None:
        """Returns a differently sealed form of the publication that is whole and not on disk yet."""
        for other in self._live.get(form.publication, ()):
            if other is not form and other.state in WHOLE and other.reason is None:
                return other
        return None
