"""What goes out of a spool over the network: ranges of segments and sealed keys to one identity, nothing to others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow.flight")
import pyarrow as pa
from pyarrow import flight

from spark_ingest.errors import BadOption, GrantsError
from spark_ingest.extents.credentials import HOST, tls_of
from spark_ingest.extents.server import ExtentServer, sealed_keys
from spark_ingest.extents.tickets import META_SIZE, KeysTicket, SegmentTicket
from tests.spark_ingest.extents.served import Served, identity_in
from tests.spark_ingest.region import write_grants


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.stop()


def got(client: flight.FlightClient, ticket: bytes) -> tuple[int | None, dict[int, bytes]]:
    reader = client.do_get(flight.Ticket(ticket), flight.FlightCallOptions(timeout=20))
    size = (reader.schema.metadata or {}).get(META_SIZE)
    chunks = {chunk.data["at"][0].as_py(): chunk.data["data"][0].as_py() for chunk in reader}
    return (None if size is None else int(size)), chunks


def connected(served: Served, address: str) -> flight.FlightClient:
    pems = tls_of(served.identity)
    return flight.FlightClient(
        f"grpc+tls://{address}", tls_root_certs=pems.authority, cert_chain=pems.certificate, private_key=pems.key,
        override_hostname=HOST,
    )  # fmt: skip


def test_ranges_of_segments_and_sealed_keys_are_there_and_nothing_else(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ingest.extents.server.CHUNK_BYTES", 1000)
    address = served.start()
    (extent,) = served.extents()
    content = Path(extent.path).read_bytes()
    with connected(served, address) as client:
        size, chunks = got(client, SegmentTicket("main", 1, 5000, extent.end + 1_000_000).encode())
        assert size == len(content)
        assert max(map(len, chunks.values())) == 1000
        assert all(content[at : at + len(data)] == data for at, data in chunks.items())
        assert b"".join(data for at, data in sorted(chunks.items()) if at >= 5000) == content[5000:]
        assert min(chunks) == 0, "what a segment begins with"
        assert got(client, SegmentTicket("main", 7, 0, 10).encode()) == (None, {})
        assert got(client, SegmentTicket("other", 1, 0, 10).encode()) == (None, {})
        assert b"".join(got(client, KeysTicket("scope_keys.json").encode())[1].values()) == served.keys.read_bytes()
        for ticket in (KeysTicket("key.pem").encode(), KeysTicket("../reader/key.pem").encode(), b"{}", b"\xff"):
            with pytest.raises(flight.FlightServerError):
                got(client, ticket)
        for call in (client.list_flights, client.list_actions):
            with pytest.raises(pa.ArrowException):
                list(call())


def test_nobody_without_the_identity_gets_anything(served: Served, tmp_path: Path) -> None:
    address = served.start()
    ours, theirs = tls_of(served.identity), tls_of(identity_in(tmp_path / "stranger", b"s"))
    ticket = KeysTicket("scope_keys.json").encode()
    for shown in ({}, {"cert_chain": theirs.certificate, "private_key": theirs.key}):
        with (
            flight.FlightClient(
                f"grpc+tls://{address}", tls_root_certs=ours.authority, override_hostname=HOST, **shown
            ) as client,
            pytest.raises(flight.FlightUnavailableError),
        ):
            got(client, ticket)
    with flight.FlightClient(f"grpc+tcp://{address}") as client, pytest.raises(flight.FlightUnavailableError):
        got(client, ticket)


def test_keys_in_clear_are_not_served(served: Served, tmp_path: Path) -> None:
    clear = write_grants(tmp_path / "clear.json")
    with pytest.raises(GrantsError, match="not sealed"):
        ExtentServer(served.spool, [clear], served.reader, "127.0.0.1:0")
    served.start()
    served.keys.write_bytes(clear.read_bytes())  # a receiver that was started otherwise meanwhile
    with (
        connected(served, f"127.0.0.1:{served.server.port}") as client,
        pytest.raises(  # type: ignore[union-attr]
            flight.FlightServerError, match="not sealed"
        ),
    ):
        got(client, KeysTicket("scope_keys.json").encode())
    for text in ("[]", "{", '{"veilmq_grant": 2, "box": "", "scopes": []}'):
        clear.write_text(text)
        with pytest.raises(GrantsError, match="not sealed"):
            sealed_keys(clear)
    with pytest.raises(GrantsError, match="No such file"):
        sealed_keys(tmp_path / "absent")


def test_what_cannot_be_served_is_one_line(served: Served, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no directory"):
        ExtentServer(tmp_path / "absent", [served.keys], served.reader, "127.0.0.1:0")
    with pytest.raises(BadOption, match="different names"):
        ExtentServer(served.spool, [served.keys, served.keys], served.reader, "127.0.0.1:0")
    with pytest.raises(GrantsError, match="grants_identity"):
        ExtentServer(served.spool, [served.keys], tmp_path / "nobody", "127.0.0.1:0")
    with pytest.raises(BadOption, match="choose a HOST:PORT"):
        ExtentServer(served.spool, [served.keys], served.reader, "256.0.0.1:x")
