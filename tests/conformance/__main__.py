"""Prints the conformance table, or runs it.

python -m tests.conformance                    every statement and the rows that prove it
python -m tests.conformance 5 3.8.4-2          the exchanges of one statement, in bytes
python -m tests.conformance run                all rows until the first that fails; exit status 1
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

from tests.conformance.elsewhere import ELSEWHERE
from tests.conformance.exchanges import ROWS
from tests.conformance.harness import Loop, run_row
from tests.conformance.hearing import Heard, MismatchError
from tests.conformance.packets import Says, Who
from tests.conformance.rows import VERSION_NAMES, Cut, Ended, Hear, Open, Pass, Row, Say, Upgrade
from tests.conformance.statements import statements

NAMES = {level: name for name, level in VERSION_NAMES.items()}
#: Bytes of a packet that are printed.
SHOWN = 64


class _Ids(dict[str, int]):
    """Named packet identifiers are numbered as they are met."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self) + 1
        return self[name]


def _hex(packet: Says | Heard, who: Who) -> str:
    if isinstance(packet, Heard):
        return f"{_hex(packet.example, who)}   (open: {packet.leaves_open})"
    raw = packet if isinstance(packet, bytes) else packet(who)
    return raw[:SHOWN].hex(" ") + (f" ... ({len(raw)} bytes)" if len(raw) > SHOWN else "")


def exchange(row: Row, version: int) -> Iterator[str]:
    """The steps of a row as lines of bytes."""
    people: dict[str, Who] = {}
    for step in row.steps:
        match step:
            case Open(peer, own, listener):
                people.setdefault(peer, Who(peer, own or version, _Ids()))
                yield f"{peer} opens a connection to {listener}"
            case Say(peer, packets):
                for packet in packets:
                    yield f"{peer} sends   {_hex(packet, people[peer])}"
            case Hear(peer, expected):
                for one in expected:
                    yield f"{peer} expects {_hex(one, people[peer])}"
            case Upgrade(peer, request):
                yield f"{peer} sends   {request!r}"
            case Ended(peer, code):
                told = f" after DISCONNECT {code:#04x}" if code is not None and people[peer].version == 5 else ""
                yield f"{peer} expects the end of the connection{told}"
            case Cut(peer):
                yield f"{peer} breaks the connection"
            case Pass(seconds):
                yield f"{seconds:g} s pass"


def print_table() -> None:
    for (version, number), statement in statements().items():
        print(f"MQTT {NAMES[version]} [MQTT-{number}] ({statement.binds}) {statement.text}")
        for row in ROWS:
            if number in row.proves.get(version, ()):
                print(f"    {row.name}")
        if (version, number) in ELSEWHERE:
            print("    {}: {}".format(*ELSEWHERE[version, number]))


def print_statement(version: int, number: str) -> None:
    statement = statements()[version, number]
    print(f"MQTT {NAMES[version]} [MQTT-{number}] ({statement.binds}) {statement.text}")
    for row in ROWS:
        if number in row.proves.get(version, ()):
            print(f"\n  {row.name}")
            for line in exchange(row, version):
                print(f"    {line}")


def run() -> int:
    logging.disable(logging.CRITICAL)
    loop = Loop()
    for row in ROWS:
        for version in row.proves:
            try:
                run_row(loop, row, version)
            except MismatchError as error:
                print(f"{NAMES[version]}: {row.name}\n{error}")
                return 1
            except Exception as error:  # noqa: BLE001 - a broker that cannot even start is red as well
                print(f"{NAMES[version]}: {row.name}\n{error!r}")
                return 1
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print_table()
        case ["run"]:
            sys.exit(run())
        case [version, number] if version in VERSION_NAMES and (VERSION_NAMES[version], number) in statements():
            print_statement(VERSION_NAMES[version], number)
        case _:
            sys.exit(__doc__)
