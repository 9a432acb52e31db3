"""Options of writing back: one line for what cannot work."""

from __future__ import annotations

import re

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.writing.publish_options import parse_publish_options


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option host is missing"),
        ({"host": "a b"}, "option host is missing"),
        ({"host": "gw:1883"}, "holds a port"),
        ({"host": "gw", "password": "secret"}, "password_file"),
        ({"host": "gw", "spool": "x"}, "'spool' is unknown"),
        ({"host": "gw", "port": "0"}, "out of range"),
        ({"host": "gw", "port": "mqtt"}, "not a number"),
        ({"host": "gw", "tls": "yes"}, "neither true nor false"),
        ({"host": "gw", "ca_file": "x"}, "tls=true"),
        ({"host": "gw", "password_file": "x"}, "username"),
        ({"host": "gw", "write_id": "a/b"}, "write_id"),
    ],
)
def test_a_wrong_option_is_one_line(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=re.escape(told)) as error:
        parse_publish_options(given)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_the_port_follows_tls_and_names_are_read_in_any_case() -> None:
    assert parse_publish_options({"Host": "gw"}).port == 1883
    assert parse_publish_options({"host": "gw", "TLS": "True"}).port == 8883
