"""The file of scope keys as its writer keeps it: there before the rows, gone after the last of them."""

from __future__ import annotations

from pathlib import Path

from keys.envelope import KeyName
from spark_ingest.secrets.grants import encode_grants
from spark_ingest.secrets.grants_writer import names_in
from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.segments import read_groups
from spark_ingest.spool.view import SpoolView
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import Link, Overlay, Publisher

SCOPE = "plant/#"


def name(epoch: int, bump: int = 0) -> KeyName:
    return KeyName(SCOPE, epoch, bump)


def test_the_spool_tells_which_epoch_keys_its_rows_need(tmp_path: Path) -> None:
    overlay = Overlay()
    publisher, link = Publisher(overlay), Link(overlay)
    spool = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    assert (spool.segment, spool.oldest_segment) == (0, 0)
    spool.roll(b"")
    link.publish(publisher.seal("plant/a"))
    link.publish(publisher.seal("entities/gw1/a/availability"))
    link.write(spool)
    spool.roll(b"")
    overlay.change(bump=1)
    link.publish(publisher.seal("plant/a"))
    link.write(spool)
    view = SpoolView(tmp_path)
    first, second = (list(read_groups(extent)) for extent in view.ranges({}, view.advance({}), 2))
    assert names_in(first) == {name(0), KeyName("entities/#", 0, 0)}
    assert names_in(second) == {name(0, 1)}
    assert (spool.segment, spool.oldest_segment) == (2, 1)
    consumer = Consumer(tmp_path, "job", view)
    consumer.register()
    consumer.commit(view.advance({}))
    assert spool.oldest_segment == 2
    spool.close()


def test_equal_scopes_give_equal_bytes() -> None:
    overlay = Overlay()
    scopes = list(overlay.held().scopes.values())
    assert encode_grants(scopes) == encode_grants(reversed(scopes))
