"""Objects in a storage: what is put comes back, what is none is none, and what a storage says is one line."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.errors import IngestError
from spark_ingest.extents.storage import Storage, decode_stretch, encode_stretch


def test_what_is_put_comes_back_until_it_is_removed(tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    one, other = Storage(url, "one"), Storage(url, "other")
    assert one.object_names() == []
    one.put_object("main/00000001/1-5", [b"a", b"bc"])
    one.put_object("keys/k.json", [b"old"])
    one.put_object("keys/k.json", [b"k"])
    assert bytes(one.get_object("main/00000001/1-5") or b"") == b"abc"
    assert (one.object_names(), other.object_names()) == (["keys/k.json", "main/00000001/1-5"], [])
    one.remove_object("main/00000001/1-5")
    one.remove_object("main/00000001/1-5")
    assert (one.get_object("main/00000001/1-5"), other.get_object("keys/k.json"), one.object_names()) == (
        None,
        None,
        ["keys/k.json"],
    )


def test_what_pyarrow_does_not_speak_fsspec_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a stand-in of fsspec, that holds objects in memory as its `memory` does."""
    held: dict[str, bytes] = {}

    def told(url: str) -> Any:
        assert url == "memory://plant"
        return Held(held), "/plant"

    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(core=SimpleNamespace(url_to_fs=told)))
    storage = Storage("fsspec+memory://plant", "one")
    storage.put_object("keys/k", [b"1", b"2"])
    assert held == {"/plant/one/keys/k": b"12"}
    assert bytes(storage.get_object("keys/k") or b"") == b"12"
    assert storage.object_names() == ["keys/k"]
    storage.remove_object("keys/k")
    assert storage.get_object("keys/k") is None


def test_directories_are_made_where_a_storage_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fsspec's `file`, `sftp` and `smb`."""
    held: dict[str, bytes] = {}
    server = WithDirectories(held)
    monkeypatch.setitem(
        sys.modules, "fsspec", SimpleNamespace(core=SimpleNamespace(url_to_fs=lambda _: (server, "/srv")))
    )
    storage = Storage("fsspec+sftp://nas/srv", "one")
    storage.put_object("keys/k", [b"1"])
    storage.put_object("keys/l", [b"2"])
    assert (held, server.made) == ({"/srv/one/keys/k": b"1", "/srv/one/keys/l": b"2"}, ["/srv/one/keys"])


class Held:
    """As much of fsspec's interface as pyarrow asks for."""

    protocol = "memory"

    def __init__(self, held: dict[str, bytes]) -> None:
        self._held = held

    def open(self, path: str, mode: str) -> Any:
        if mode == "rb":
            if path not in self._held:
                raise FileNotFoundError(path)
            return io.BytesIO(self._held[path])
        held = self._held

        class Written(io.BytesIO):
            def close(self) -> None:
                held[path] = self.getvalue()
                super().close()

        return Written()

    def isfile(self, path: str) -> bool:
        return path in self._held

    def isdir(self, path: str) -> bool:
        return any(each.startswith(f"{path}/") for each in self._held)

    def exists(self, path: str) -> bool:
        return self.isfile(path) or self.isdir(path)

    def find(self, path: str, **_: Any) -> dict[str, Any]:
        return {name: self.info(name) for name in self._held if name.startswith(path)}

    def info(self, path: str) -> dict[str, Any]:
        if not self.exists(path):
            raise FileNotFoundError(path)
        return {
            "name": path,
            "type": "file" if self.isfile(path) else "directory",
            "size": len(self._held.get(path, "")),
        }

    def rm(self, path: str) -> None:
        del self._held[path]


class WithDirectories(Held):
    """Nothing is written where no directory was made."""

    def __init__(self, held: dict[str, bytes]) -> None:
        super().__init__(held)
        self.made: list[str] = []

    def open(self, path: str, mode: str) -> Any:
        if mode == "wb" and path.rpartition("/")[0] not in self.made:
            raise FileNotFoundError(path)
        return super().open(path, mode)

    def mkdir(self, path: str, create_parents: bool) -> None:
        assert create_parents
        self.made.append(path)


@pytest.mark.long
@pytest.mark.parametrize("url", ["file:///proc/none/bucket", "s3://bucket?scheme=none", "gs:// no url"])
def test_what_a_storage_says_is_one_line(url: str) -> None:
    with pytest.raises(IngestError, match="extents=") as caught:
        Storage(url, "one").put_object("main/00000001/1-5", [b"a"])
    assert "\n" not in str(caught.value)


def test_fsspec_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(IngestError, match="fsspec"):
        Storage("fsspec+memory://plant", "one")


def test_a_stretch_is_what_of_it_is_there() -> None:
    buffer = pa.py_buffer(bytes(range(100)))
    for start, end, expected in ((20, 50, (20, 50)), (0, 50, (10, 50)), (90, 200, (90, 100)), (100, 100, (100, 100))):
        told = decode_stretch(memoryview(b"".join(map(bytes, encode_stretch(buffer, 10, start, end)))))
        assert (told.size, told.start, bytes(told.head)) == (100, expected[0], bytes(range(10)))
        assert bytes(told.data) == bytes(range(*expected))


@given(st.binary(max_size=80), st.integers(0, 79), st.integers(0, 255))
def test_what_was_altered_is_refused_or_stays_within_the_segment(tail: bytes, at: int, value: int) -> None:
    whole = bytearray(b"".join(map(bytes, encode_stretch(pa.py_buffer(bytes(100)), 10, 20, 40))) + tail)
    whole[at % len(whole)] = value
    try:
        told = decode_stretch(memoryview(whole))
    except ValueError:
        return
    assert 0 <= told.start <= told.start + len(told.data) <= told.size
    assert len(told.head) <= told.start
