"""`veilmq receipts` from a data directory, and `veilmq verify` of its proof by somebody else."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bridge.contract import KeepSealed, Numbered, Publication, ReceiptCame
from bridge.receipts import ReceiptRow, SealedBatch
from bridge.receipts.hashes import root, sha256
from bridge.receipts.receipt import Listed, Receipt, ReceiptBody
from gateway import cli
from gateway.base import private_directory
from gateway.data import sealing_key
from gateway.receipts import RECEIPTS_PURPOSE, ReceiptDatabase, receipts_file
from gateway.setup import Plan, make_overlay
from gateway.trust import LocalIdentity
from keys.envelope import NO_KEY, MessageHeader, Mode, sign_header


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A gateway g1 that published two messages, of which g2 has the first."""
    made = make_overlay(tmp_path / "made", Plan(), 21950, time.time()).overlay_path.parent
    data = made / "g1" / "data"
    key = sealing_key(private_directory(data), RECEIPTS_PURPOSE)
    site, reader = (LocalIdentity.load(made / name / "identity") for name in ("g1", "g2"))
    batches = []
    for number, text in ((5, b"open the valve"), (6, b"close the valve")):
        header = MessageHeader(
            site.identity.party_id, NO_KEY, number, 0, 1, 0, 1, False, False, Mode.PLAIN, (sha256(text),)
        )  # fmt: skip
        frame = sign_header(site.identity, header, "veilmq/batch/1").encode()
        record = Numbered(number, Publication("plant/valve", text, 1, time_ms=1))
        batches.append(SealedBatch.from_records(number, 1, "veilmq/batch/1", frame, bytes(32), [record]))
    first = batches[0]
    draft = ReceiptBody("g2", site.identity.party_id, 1, 2, 0, 0, (), b"", 0, b"", root([first.hashed]))
    receipt = Receipt.sign(reader.identity, draft, [Listed(5, first.frame_hash[:4])])
    row = ReceiptRow(receipt.body, receipt.signature, ((5, first.hashed),)).encode()
    database = ReceiptDatabase(receipts_file(data), key)
    database.write([KeepSealed(b.number, b.encode()) for b in batches], [ReceiptCame("g2", 2, 5, 5, row, ())])
    database.close()
    return made


def test_one_party_proves_to_another_that_a_reader_has_a_message(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, proof = str(site / "g1" / "broker.yaml"), tmp_path / "delivery.json"
    assert cli.run(["receipts", "plant/#", "-c", config, "--json"]) == 0
    messages = json.loads(capsys.readouterr().out)["messages"]
    assert [(each["number"], each["readers"]) for each in messages] == [(6, {}), (5, {"g2": 2})]
    assert cli.run(["receipts", "-c", config]) == 0
    assert "g2" in capsys.readouterr().out
    assert cli.run(["receipts", "prove", "5", "-c", config, "--out", str(proof)]) == 0
    capsys.readouterr()
    assert cli.run(["verify", str(proof), "--overlay", str(site / "overlay.json")]) == 0
    said = capsys.readouterr().out
    assert "proved: g1 published message 5 on plant/valve" in said
    assert sha256(b"open the valve").hex() in said
    assert "reader's key: it is the present key of g2" in said
    assert cli.run(["verify", str(proof), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["publisher"], told["reader"], told["number"], told["standing"]) == ("g1", "g2", 5, None)
    document = json.loads(proof.read_text())
    document["record"]["topic"] = "plant/other"
    proof.write_text(json.dumps(document))
    assert cli.run(["verify", str(proof)]) == 2
    assert "it proves nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [(["prove", "6", "--out", "x"], "no receipt"), (["prove", "9", "--out", "x"], "not kept here"),
     (["prove", "5", "--out", "/absent/x"], "cannot be written"), (["plant/#/x"], "must be the last level"),
     (["prove", "9" * 20, "--out", "x"], "not kept here")],
)  # fmt: skip
def test_what_has_no_proof_ends_with_a_line_and_status_2(
    site: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert cli.run(["receipts", *words, "-c", str(site / "g1" / "broker.yaml")]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_gateway_without_receipts_says_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["receipts", "-c", str(site / "g2" / "broker.yaml")]) == 2
    assert "there are no receipts" in capsys.readouterr().err
