"""Batches of a group for receipts: what the spool of a job has on disk (docs/protocol-options.md §14).

A receipt binds content, so batches of scopes with receipts are opened here, with the epoch keys of the job, by the
rules of gateways (`bridge.reader.Unpacked`). A batch that does not open is in no receipt. Pure. Not here: the signature
and the way of receipts (`bridge.node.JobNode`), rows for queries (`opening`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bridge.document import ScopeSecret
from bridge.reader import Unpacked
from bridge.receipts import PLAIN, ChainId, HadBatch
from bridge.wire import Admitted
from keys.envelope import DataKey, KeyName, Mode
from keys.errors import BadContent, KeysError
from keys.keyopening import KeyOpener, SealedKey
from spark_ingest.receiving.sealings import Form, Group
from spark_ingest.spool import SpooledKey

KEYS_KEPT = 1_024
"""Opened data keys of scopes with receipts; one that went is opened again."""


class SpooledBatch(NamedTuple):
    """A batch in the spool, with the chain whose receipt is going to list it."""

    chain: ChainId
    batch: HadBatch


class SpooledBatches:
    """The opener of a session's batches for receipts. One call at a time."""

    def __init__(self) -> None:
        self._opener = KeyOpener()
        self._keys: OrderedDict[bytes, DataKey] = OrderedDict()

    def batches_of(
        self, group: Group, secrets: Sequence[ScopeSecret], keys: Mapping[KeyName, bytes], since_ms: int
    ) -> list[SpooledBatch]:
        """Returns the batches of a group that is on disk. `keys`: epoch keys; `since_ms`: the time from which the job
        reads: what was retained before is in no receipt.
        """
        by_filter = {secret.scope.filter: secret for secret in secrets}
        found = []
        for record, form in zip(group.records, group.entries, strict=True):
            admitted, header = form.admitted, form.header
            secret = by_filter.get(admitted.scope.filter)
            was_before = header.retain and header.time_ms < since_ms
            if record.reason is not None or secret is None or not secret.scope.receipts or was_before:
                continue
            assert record.sealed is not None, "a row without a reason is whole"
            try:
                key = self._key(admitted, group.keys, keys)
                batch = _had(form, secret, record.sealed, key)
            except KeysError:
                continue  # queries show such a row in the stream `quarantine`
            if batch is not None:
                found.append(SpooledBatch(ChainId(header.publisher, admitted.scope.number), batch))
        return found

    def _key(
        self, admitted: Admitted, materials: Mapping[bytes, SpooledKey], keys: Mapping[KeyName, bytes]
    ) -> DataKey | None:
        """Returns the data key of a batch; None for a plain one. Raises KeysError."""
        header = admitted.header
        if header.mode is Mode.PLAIN:
            return None
        key = self._keys.get(header.key_id)
        if key is None:
            told = materials.get(header.key_id)
            if told is None:
                raise BadContent("a batch without its key")
            outline = self._opener.outline(told.header)
            epoch_key = keys.get(outline.name) if admitted.scope.keyed else None
            if outline.name.scope != admitted.scope.filter or (admitted.scope.keyed and epoch_key is None):
                raise BadContent("a batch of another scope, or of an epoch key that is not here")
            (opened,) = self._opener.open_keys([SealedKey(header.key_id, outline, told.header, told.shares, epoch_key)])
            if isinstance(opened, KeysError):
                raise opened
            key = self._keys[header.key_id] = opened
            if len(self._keys) > KEYS_KEPT:
                self._keys.popitem(last=False)
        return key


def _had(form: Form, secret: ScopeSecret, sealed: bytes, key: DataKey | None) -> HadBatch | None:
    """Returns a batch; None if one of its records is refused or had expired. Raises KeysError."""
    header, admitted = form.header, form.admitted
    clear = sealed if key is None else key.open(header.prefix(), header.sequence, form.topic, sealed)
    found = Unpacked(secret, admitted, clear, form.arrived)
    if header.retain:
        found.check_retained(admitted, form.topic)
    if found.refused or found.expired:
        return None
    blinding = PLAIN if key is None else key.blinding(header.sequence)
    return HadBatch.from_records(header, admitted.frame, found.records, blinding)
