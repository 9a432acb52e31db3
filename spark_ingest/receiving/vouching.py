"""Publications of no live epoch, until enough replicas have brought them (`admission` says why they need it).

Pure. Not here: which publications these are, and what becomes of them.
"""

from __future__ import annotations

from collections import Counter

from keys.errors import NotAuthorised
from spark_ingest.receiving.directory import Directory
from spark_ingest.receiving.sealings import Form

UNVOUCHED_MAX = 4_096
"""Publications of no live epoch that wait for another replica to bring them, of each replica. Receive Maximum keeps
honest ones below; a bad one fills neither memory nor disk with what somebody who was shut out has dated back."""


class Vouching:
    """Who brought what, and how much of it each replica brought first."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._hosted = directory.hosted  # while we run
        self._unvouched: Counter[str] = Counter()  # by replica; members of the overlay only

    def check_room(self, replica: str) -> None:
        """Raises NotAuthorised where a replica has brought too much that nobody else brings."""
        if self._unvouched[replica] >= UNVOUCHED_MAX:
            raise NotAuthorised("too much that is of no live epoch and that no other replica brings")

    def begin(self, form: Form, replica: str) -> None:
        """The form needs more than the replica that brings it first."""
        form.vouchers = set()
        form.unvouched_at = replica
        self._unvouched[replica] += 1

    def brought(self, form: Form, replica: str) -> None:
        """With enough replicas of ours a form is believed: then it has no `vouchers` any more."""
        if form.vouchers is None:
            return
        if replica not in self._hosted:
            form.vouchers.add(replica)
        if self._directory.honest_among(form.vouchers):
            form.vouchers = None
            self.release(form)

    def release(self, form: Form) -> None:
        """It does not count against the replica that brought it first any more."""
        if form.unvouched_at is not None:
            self._unvouched[form.unvouched_at] -= 1
            form.unvouched_at = None
