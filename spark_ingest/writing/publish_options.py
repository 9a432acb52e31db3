"""Options of `df.write.format("veilmq")` and `df.writeStream.format("veilmq")`: the gateway, and how to reach it.

Options show in the plan, its `explain` and Spark's event log: so a password is named by a file, never given. The
reader's options are `options`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from spark_ingest.errors import BadOption

N = TypeVar("N", int, float)

IN_FLIGHT_DEFAULT = 1000
PATIENCE_DEFAULT_S = 60.0
WRITE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

_NAMES = {
    "host", "port", "tls", "ca_file", "username", "password_file", "in_flight", "patience_s", "write_id",
}  # fmt: skip
_SPARKS = {"queryname", "checkpointlocation"}
"""Options of every streaming query, which Spark hands to the sink too."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Checked options; the table of docs/reference/spark.md says what each one does."""

    host: str
    port: int
    tls: bool
    ca_file: Path | None
    username: str | None
    password_file: Path | None
    in_flight: int
    patience_s: float
    write_id: str | None


def parse_publish_options(given: Mapping[str, str]) -> PublishOptions:
    """Checks the user's options. Raises BadOption, a line naming the option and a value that works."""
    told = {name.lower(): value for name, value in given.items()}
    if "password" in told:
        raise BadOption(
            "option password would be written into plans and event logs; "
            'write the password into a file of mode 0600 and .option("password_file", FILE)'
        )
    for name in told:
        if name not in _NAMES | _SPARKS:
            raise BadOption(
                f"option {name!r} is unknown when veilmq is written to; known are {', '.join(sorted(_NAMES))}"
            )
    host = told.get("host", "")
    if not host or "/" in host or any(sign.isspace() for sign in host):
        raise BadOption('option host is missing; write .option("host", NAME) with the name or address of a gateway')
    if ":" in host and host.count(":") == 1:
        raise BadOption(f"host={host!r} holds a port; name it by option port")
    tls = _truth(told, "tls")
    if told.get("ca_file") and not tls:
        raise BadOption("option ca_file has no meaning without tls=true; add it, or take ca_file away")
    if told.get("password_file") and not told.get("username"):
        raise BadOption("option password_file needs option username too")
    write_id = told.get("write_id")
    if write_id is not None and not WRITE_ID.fullmatch(write_id):
        raise BadOption(f"write_id={write_id!r} is none; use up to 64 letters, digits, '.', ':', '-' and '_'")
    return PublishOptions(
        host=host,
        port=_number(told, "port", int, 8883 if tls else 1883, 1, 65_535),
        tls=tls,
        ca_file=_path(told, "ca_file"),
        username=told.get("username") or None,
        password_file=_path(told, "password_file"),
        in_flight=_number(told, "in_flight", int, IN_FLIGHT_DEFAULT, 1, 10_000),
        patience_s=_number(told, "patience_s", float, PATIENCE_DEFAULT_S, 0.1, 86_400.0),
        write_id=write_id,
    )


def _path(told: Mapping[str, str], name: str) -> Path | None:
    return Path(told[name]).absolute() if told.get(name) else None


def _truth(told: Mapping[str, str], name: str) -> bool:
    value = told.get(name, "false").lower()
    if value not in ("true", "false"):
        raise BadOption(f"{name}={value!r} is neither true nor false")
    return value == "true"


def _number(told: Mapping[str, str], name: str, kind: Callable[[str], N], default: N, lowest: N, highest: N) -> N:
    text = told.get(name)
    if text is None:
        return default
    try:
        value = kind(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a number") from None
    if not lowest <= value <= highest:
        raise BadOption(f"{name}={text} is out of range; from {lowest} to {highest}")
    return value
