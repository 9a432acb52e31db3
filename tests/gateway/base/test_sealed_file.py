"""A sealed file gives what was put in or refuses, whatever was cut off or crashed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.sealed_file import MAGIC, SealedFile, SealedFileError

KEY = bytes(range(32))
OWNER = b"o" * 32


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=300), cut=st.integers(0, 400))
def test_a_sealed_file_gives_what_was_put_in_or_refuses(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: int
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "file"
    SealedFile(path, KEY, b"test").replace(content)
    assert SealedFile(path, KEY, b"test").read() == content
    whole = path.read_bytes()
    assert whole.startswith(MAGIC)
    path.write_bytes(whole[:cut])
    if cut < len(whole):
        with pytest.raises(SealedFileError):
            SealedFile(path, KEY, b"test").read()
    assert SealedFile(path.with_name("none"), KEY, b"test").read() is None


def test_a_crash_between_writing_and_erasing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is durable, the old one is erased or not: the next start has the new one."""
    file = SealedFile(tmp_path / "file", KEY, b"test")
    file.replace(b"old")
    for step in ("gateway.base.sealed_file.erase", "gateway.base.sealed_file.os.rename"):
        with monkeypatch.context() as patched:

            def crash(*_: object) -> None:
                raise OSError("power failed")

            patched.setattr(step, crash)
            with pytest.raises(SealedFileError, match="power failed"):
                file.replace(b"new" + step.encode())
        assert SealedFile(tmp_path / "file", KEY, b"test").read() == b"new" + step.encode()
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
