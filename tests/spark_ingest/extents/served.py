"""A spool with sealed keys and a server of it, as tests need them: what the driver's machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keys.identity import Identity
from spark_ingest.extents.server import ExtentServer
from spark_ingest.options import Options, parse_options
from spark_ingest.secrets.grants import seal_grants
from spark_ingest.spool import ByteRange, SpoolView, SpoolWriter
from tests.spark_ingest.region import Link, Overlay, Publisher, write_grants


def identity_in(directory: Path, seed: bytes = b"r") -> Identity:
    """A directory with an identity's private key."""
    identity = Identity.from_private_bytes(seed.ljust(32, b"0"))
    directory.mkdir()
    key = directory / "key.pem"
    key.touch(mode=0o600)
    key.write_bytes(identity.private_pem())
    return identity


class Served:
    """`hide` takes spool and keys away from who has no server: then only that gets at them."""

    def __init__(self, path: Path, count: int = 50) -> None:
        self.path, self.there = path, path / "there"
        self.there.mkdir()
        self.reader = path / "reader"
        self.identity = identity_in(self.reader)
        self.overlay = Overlay()
        self.publisher, self.link = Publisher(self.overlay), Link(self.overlay)
        self.spool, self.keys = self.there / "spool", self.there / "scope_keys.json"
        self.seal_keys()
        self.fill(count)
        self.server: ExtentServer | None = None

    def seal_keys(self) -> None:
        """As a receiver with grants_identity writes the file."""
        clear = write_grants(self.path / "clear.json")
        self.keys.unlink(missing_ok=True)
        self.keys.touch(mode=0o600)
        self.keys.write_bytes(seal_grants(clear.read_bytes(), self.identity, bytes(range(32))))
        clear.unlink()

    def fill(self, count: int) -> None:
        """One more segment."""
        writer = SpoolWriter(self.spool, "main", cap_bytes=1 << 30)
        writer.roll(b"")
        for _ in range(count):
            self.link.publish(self.publisher.seal("plant/a", b"21.5" * 50))
        self.link.write(writer, 10)
        writer.close()

    def start(self) -> str:
        """Serve; where."""
        self.server = ExtentServer(self.spool, [self.keys], self.reader, "127.0.0.1:0")
        return f"127.0.0.1:{self.server.port}"

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def options(self, **more: str) -> Options:
        told = {"spool": self.spool, "grants": self.keys, "grants_identity": self.reader}
        return parse_options({name: str(value) for name, value in told.items()} | more)

    def extents(self, parts: int = 1) -> list[ByteRange]:
        view = SpoolView(self.spool)
        return list(view.ranges({}, view.latest(), parts))

    def hide(self) -> None:
        """Executors on another machine see neither; the server has files open by other names then."""
        moved = self.path / "hidden"
        self.there.rename(moved)
        assert self.server is not None
        self.server._spool = moved / "spool"
        self.server._grants = {self.keys.name: moved / self.keys.name}


def rows_of(batches: Any) -> list[tuple[str, int, bytes]]:
    """What tests compare."""
    return [(row["topic"], row["sequence"], row["payload"]) for batch in batches for row in batch.to_pylist()]
