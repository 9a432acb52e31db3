"""`veilmq receipts`: who has which message of this gateway, and proofs of delivery for others.

Reads the database of the member's data directory, also while the member runs: whoever may read that directory may ask.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.commands.printing import Json, print_json, print_table, utc_text

if TYPE_CHECKING:
    from gateway.base import Settings
    from gateway.receipts import ReceiptDatabase

Config = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="Configuration of the gateway.")]


class _Receipts(TyperGroup):
    """Group whose first word may be left out: `veilmq receipts TOPIC` is `veilmq receipts list TOPIC`."""

    left_out = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [self.left_out, *args]
        return super().parse_args(ctx, args)


receipts_app = typer.Typer(cls=_Receipts, help="Who has the messages that this gateway published, and proofs of it.")


@receipts_app.command("list")
def list_receipts(
    config: Config,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="A topic or filter: list messages instead of readers.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="With TOPIC: how many of the newest messages.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the receipts of each reader, or, with TOPIC, which readers have each message."""
    from gateway.receipts import by_reader, messages_of

    with _database(config) as (database, _):
        if topic is None:
            _print_readers([asdict(each) for each in by_reader(database)], as_json)
        else:
            _print_messages([asdict(each) for each in messages_of(database, topic, limit)], as_json)


def _print_readers(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"readers": rows})
        return
    columns = ["reader", "receipts", "newest (its clock)", "up to message"]
    shown = [[one["reader"], str(one["receipts"]), utc_text(one["time_ms"]), str(one["last"])] for one in rows]
    print_table("", columns, shown)


def _print_messages(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"messages": rows})
        return
    from gateway.terminal.written import terminal_text

    columns = ["message", "published", "topic", "readers that have it"]
    shown = [
        [
            str(one["number"]),
            utc_text(one["time_ms"]),
            terminal_text(one["topic"]),
            ", ".join(sorted(one["readers"])) or "none yet",
        ]
        for one in rows
    ]
    print_table("", columns, shown)


@receipts_app.command()
def prove(
    message: Annotated[int, typer.Argument(metavar="MESSAGE", help="Its number, as `veilmq receipts TOPIC` lists it.")],
    config: Config,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the proof.")],
    reader: Annotated[str | None, typer.Option(metavar="NAME", help="A reader; needed if several have it.")] = None,
) -> None:
    """Write a file by which anybody can check that a reader has a message; it shows no other message."""
    from bridge.receipts import DeliveryProof
    from gateway.receipts import ReceiptsError, proofs_of
    from gateway.terminal.written import terminal_text
    from gateway.trust import LocalIdentity, load_overlay
    from gateway.trust.evidence_file import write_proof

    with _database(config) as (database, settings):
        where = settings.overlay
        assert where is not None
        local = LocalIdentity.load(where.identity)
        overlay = load_overlay(where.overlay, int(time.time() * 1000))
        proofs: dict[str, DeliveryProof] = proofs_of(database, message, reader, overlay, local.name, local.identity)
    if len(proofs) > 1:
        raise ReceiptsError(f"message {message}: {', '.join(sorted(proofs))} have it; name one with --reader NAME")
    ((_, proof),) = proofs.items()
    write_proof(out, proof)
    print(terminal_text(proof.check_proof().says))
    print(f"proof in {out}; anybody can check it with veilmq verify {out}")


@contextmanager
def _database(config: Path) -> Iterator[tuple[ReceiptDatabase, Settings]]:
    """Opens the receipts of a gateway. Raises ConfigError, StoreError, ReceiptsError."""
    from gateway.base import ConfigError, load
    from gateway.data import sealing_key
    from gateway.receipts import RECEIPTS_PURPOSE, ReceiptDatabase, ReceiptsError, receipts_file

    settings = load(config)
    if settings.overlay is None or settings.data is None:
        raise ConfigError(f"{config}: is of no gateway of an overlay; name the configuration of one")
    path = receipts_file(settings.data)
    if not path.exists():
        raise ReceiptsError(f"{path}: there are no receipts; set receipts: true for a scope, sign, and publish there")
    database = ReceiptDatabase(path, sealing_key(settings.data, RECEIPTS_PURPOSE))
    try:
        yield database, settings
    finally:
        database.close()
