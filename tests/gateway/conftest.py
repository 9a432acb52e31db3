"""What tests of the gateway share: a command line as an operator runs it, overlays as files and as processes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.setup import Made, Plan, make_overlay
from tests.gateway.traced_site import Site
from tests.support.parties import Parties, ServedParties, on_disk
from tests.support.processes import ending


@pytest.fixture
def veilmq(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line; (status, standard output, standard error)."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = cli.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture(scope="session")
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_overlay(tmp_path_factory.mktemp("plant") / "site", Plan(key_servers=4), 21000, time.time())


@pytest.fixture
def plant(_made_once: Made, tmp_path: Path) -> Made:
    """A copy of its own of what `veilmq init` makes: r1 to r3, k1 to k4, g1 and g2, and plant/# sealed."""
    directory = tmp_path / "plant"
    shutil.copytree(_made_once.directory, directory)
    return Made(directory, _made_once.members)


world = on_disk(Parties)
served = on_disk(ServedParties)
overlay = ending()
"""Real processes, which the test makes and starts; they end with it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Credentials of a broker that traces, one for all tests of a module."""
    return Site(tmp_path_factory.mktemp("site"))
