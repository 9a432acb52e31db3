"""Bounds of the configuration: what they may be, and that Prometheus is asked on this machine only."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.base.limits import Limits, Metrics


def test_every_bound_says_what_it_stops_and_has_a_least_value() -> None:
    for name, field in Limits.model_fields.items():
        assert field.description, name
        with pytest.raises(ValidationError):
            Limits(**{name: -1})


def test_a_slip_of_the_pen_is_no_bound() -> None:
    with pytest.raises(ValidationError, match="conections"):
        Limits(conections=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "bind", ["127.0.0.1:9464", "127.8.9.1:1", "localhost:9464", "[::1]:9464", "127.0.0.1:65535", "127.0.0.1:0"]
)
def test_figures_are_shown_on_this_machine(bind: str) -> None:
    assert Metrics(bind=bind).bind == bind


@pytest.mark.parametrize(
    "bind",
    ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "example.org:9464", ":9464", "127.0.0.1", "127.0.0.1:65536",
     "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:", "localhost.example.org:1", "::ffff:192.0.2.1:1", ""],
)  # fmt: skip
def test_and_nowhere_else(bind: str) -> None:
    with pytest.raises(ValidationError, match="loopback"):
        Metrics(bind=bind)
