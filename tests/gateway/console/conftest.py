"""A broker with the console, and two users of it: ann administers, bob has rights over some topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.console.running import Api, Running, console


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with console(tmp_path_factory.mktemp("console"), write=True) as running:
        yield running


@pytest.fixture
def ann(broker: Running) -> Api:
    api = broker.api()
    assert api.log_in("ann", "ann-pw") == 200
    return api


@pytest.fixture
def bob(broker: Running) -> Api:
    api = broker.api()
    assert api.log_in("bob", "bob-pw") == 200
    return api
