"""A certificate that somebody replaces is shown to the next handshake without a signal and without a restart."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.renewed import RenewedCertificates
from tests.gateway.broker.test_reloading import ConfiguredBroker
from tests.gateway.certificates import Authority
from tests.gateway.harness import Wire, on_loop


def listener(directory: Path, authority: Authority) -> dict[str, Any]:
    certfile, keyfile = authority.issue("localhost")
    certfile.rename(directory / "cert.pem")
    keyfile.rename(directory / "key.pem")
    files = {"certfile": str(directory / "cert.pem"), "keyfile": str(directory / "key.pem")}
    return {"default": {"bind": "127.0.0.1:0", "ssl": True, **files}, "plain": {"bind": "127.0.0.1:0", "ssl": False}}


@on_loop
async def test_the_next_handshake_sees_it_and_half_a_pair_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    site = ConfiguredBroker(tmp_path, listeners=listener(tmp_path, first))
    async with site as broker:
        renewed = RenewedCertificates(broker, lambda: site.settings)
        stays = await Wire.connect(broker, "stays", context=first.client())
        renewed.look()
        assert "shows" not in caplog.text
        certfile, keyfile = second.issue("localhost")
        certfile.rename(tmp_path / "cert.pem")
        renewed.look()
        assert "the certificate of before goes on" in caplog.text
        await (await Wire.connect(broker, "between", context=first.client())).barrier()
        keyfile.rename(tmp_path / "key.pem")
        renewed.look()
        await (await Wire.connect(broker, "later", context=second.client())).barrier()
        await stays.barrier()
        with pytest.raises(ssl.SSLError):
            await Wire.open(broker, context=first.client())
        assert caplog.text.count("shows the certificate in") == 1
