"""SHA-512 crypt is what OpenSSL makes, and nothing else is taken for it."""

from __future__ import annotations

import subprocess

import pytest

from gateway.auth.sha_crypt import is_sha_crypt, verify


@pytest.mark.parametrize("password", ["x", "Hello world!", "ü" * 40, "a" * 200])
def test_it_is_what_openssl_makes(password: str) -> None:
    made = subprocess.run(
        ["openssl", "passwd", "-6", "-salt", "abcdefgh", "-stdin"],
        input=password + "\n", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert is_sha_crypt(made)
    assert verify(password.encode(), made)
    assert not verify(password.encode() + b"!", made)


@pytest.mark.parametrize("text", ["", "$6$salt$short", "$5$salt$" + "a" * 86, "$6$rounds=9999999$salt$" + "a" * 86])
def test_what_is_none_or_would_take_minutes_is_refused(text: str) -> None:
    assert not is_sha_crypt(text)
    with pytest.raises(ValueError, match="no SHA-512 crypt"):
        verify(b"x", text)
