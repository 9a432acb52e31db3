"""A spool of finished segments whose shares are sealed at rest, as a receiver leaves it: what can be packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_ingest.packing import PackedSegment, pack
from spark_ingest.secrets.grants import Grants
from spark_ingest.secrets.sharebox import ShareBox
from spark_ingest.spool.packs import pack_path
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.opening.test_unpacking import content
from tests.spark_ingest.region import Overlay, Sealed, stream_of_bytes, write_grants

LOCAL_KEY = bytes(range(32))


class PackJob(Job):
    """With scopes and keys of its own."""

    def __init__(self, tmp_path: Path, overlay: Overlay | None = None) -> None:
        super().__init__(tmp_path, overlay)
        self.box = ShareBox(LOCAL_KEY, stream_of_bytes("box"))
        self.give()

    def give(self, grants: Grants | None = None, local_key: bytes | None = LOCAL_KEY) -> None:
        """Write the file of scope keys."""
        write_grants(self.grants, grants or self.overlay.held(), local_key)

    def publish(self, *sealed: Sealed, **how: Any) -> None:
        """As one group."""
        for each in sealed:
            self.link.publish(each, **how)
        while group := self.link.collector.take_group(500):
            self.writer.append(group.records, self.box.seal_all(group.keys))
            for ack in self.link.collector.note_written(group):
                ack()

    def finish(self) -> None:
        """The segment grows no more."""
        self.writer.roll(b"")

    def pack(self) -> list[PackedSegment]:
        return list(pack(self.root, self.grants, None, None))

    def pack_at(self, number: int = 1) -> Path:
        return pack_path(self.root / "main", number)


def filled(tmp_path: Path, groups: int = 4) -> PackJob:
    """One finished segment of all that occurs: retained messages, batches, availability, what does not open."""
    job = PackJob(tmp_path)
    for group in range(groups):
        job.publisher.new_key("plant/#")
        properties = (("unit", "C"), ("n", str(group)))
        job.publish(
            job.publisher.seal("plant/a", b"%d" % group, properties=properties, content_type="text/plain", qos=2),
            job.publisher.seal("plant/a", b"", retain=True),
            job.publisher.seal("entities/gw/e1/availability", b'{"state": "online", "since": 1}'),
            job.publisher.seal("plant/c", b"odd", inner_topic="other/d"),
            job.publisher.seal(
                "plant/a", clear=content(("plant/b", b"1"), ("plant/a", b"2")), sequence=1000 * group + 5
            ),
        )
    job.finish()
    return job
