"""Questions to a database of receipts, and proofs from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.contract import KeepSealed, ReceiptCame
from bridge.document import Scope
from gateway.receipts import ReceiptDatabase, ReceiptsError, by_reader, messages_of, proofs_of, receipts_file
from tests.bridge.receipts.test_delivery_proof import batch_of, row_of
from tests.sim.world import World
from tests.support.regions import one_region, shared

world = shared(one_region, "site", "lab", "evil", scopes=[Scope("plant/#", receipts=True)])


@pytest.fixture
def database(world: World, tmp_path: Path) -> ReceiptDatabase:
    made = ReceiptDatabase(receipts_file(tmp_path), bytes(32))
    batches = [batch_of(world, first) for first in (5, 10, 20)]
    had = batches[:2]
    receipt = ReceiptCame("lab", 77, 5, 10, row_of(world, had).encode(), ())
    made.write([KeepSealed(batch.number, batch.encode()) for batch in batches], [receipt])
    return made


def test_messages_and_their_readers_are_listed(database: ReceiptDatabase) -> None:
    found = messages_of(database, "plant/#", 100)
    assert [each.number for each in found] == [22, 21, 20, 12, 11, 10, 7, 6, 5]
    assert {each.number for each in found if each.readers == {"lab": 77}} == {5, 6, 7, 10, 11, 12}
    assert [each.number for each in messages_of(database, "plant/#", 2)] == [22, 21]
    assert messages_of(database, "other/#", 100) == []
    assert [(each.reader, each.last) for each in by_reader(database)] == [("lab", 10)]


def test_a_proof_is_made_of_what_is_on_disk(world: World, database: ReceiptDatabase) -> None:
    proofs = proofs_of(database, 11, None, world.overlay, "site", world.identities["site"])
    assert list(proofs) == ["lab"]
    assert proofs["lab"].check_proof().record.number == 11


@pytest.mark.parametrize(
    ("wanted", "reader", "why"), [(21, None, "no receipt"), (11, "evil", "evil"), (99, None, "not kept")]
)
def test_what_has_no_proof_is_said_with_a_cure(
    world: World, database: ReceiptDatabase, wanted: int, reader: str | None, why: str
) -> None:
    with pytest.raises(ReceiptsError, match=why):
        proofs_of(database, wanted, reader, world.overlay, "site", world.identities["site"])
