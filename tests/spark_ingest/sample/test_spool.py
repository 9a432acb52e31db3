"""`veilmq ingest sample`: what it writes opens with what it writes, and the lines that it prints run as they stand."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.options import parse_options
from spark_ingest.sample.spool import Sample, write_sample
from spark_ingest.source.reader import SpoolReader
from spark_ingest.spool.standing import standings
from tests.gateway.overlay_processes import run_veilmq

pytest.importorskip("pyspark")


def rows_of(sample: Sample, **options: str) -> list[dict[str, Any]]:
    told = {"spool": str(sample.spool), "grants": str(sample.grants), **options}
    reader = SpoolReader(parse_options(told))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_veilmq("ingest", "sample", *arguments)


def test_every_stream_has_the_rows_that_it_says(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "sample", rows=333, devices=7, seed=4)
    telemetry = rows_of(sample)
    assert len(telemetry) == sample.telemetry == 333
    assert {row["topic"].split("/")[1] for row in telemetry} == {
        "press-0", "pump-1", "press-2", "pump-3", "press-4", "pump-5", "press-6"
    }  # fmt: skip
    assert len({(row["publisher"], row["sequence"]) for row in telemetry}) == 333
    assert max(row["received_at"] - row["published_at"] for row in telemetry).total_seconds() > 10, (
        "the cut off gateway"
    )
    availability = rows_of(sample, stream="availability")
    assert len(availability) == sample.availability
    assert Counter(row["state"] for row in availability) == {"online": 8, "offline": 1}
    quarantine = rows_of(sample, stream="quarantine")
    assert sorted(row["reason"].split(":")[0] for row in quarantine) == ["grant", "shares"]
    assert sample.quarantine == 2


def test_equal_arguments_give_equal_files(tmp_path: Path) -> None:
    def contents(name: str, seed: int) -> dict[str, bytes]:
        directory = tmp_path / name
        write_sample(directory, 100, 3, seed)
        return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}

    assert contents("a", 1) == contents("b", 1)
    assert contents("a2", 1) != contents("c", 2)


def test_spool_alone_shows_nothing(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "sample", 50, 1)
    kept = b"".join(path.read_bytes() for path in sample.spool.rglob("*") if path.is_file())
    assert b"sensor" not in kept
    assert not sample.grants.is_relative_to(sample.spool)
    assert all(p.stat().st_mode & 0o077 == 0 for p in [sample.spool, sample.grants, *sample.spool.rglob("*")])


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"rows": 1_000_001}, {"devices": 0}, {"devices": 10_001}])
def test_sizes_are_bounded(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(BadOption, match="out of range"):
        write_sample(tmp_path / "sample", **wrong)
    assert not (tmp_path / "sample").exists()


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "name another directory" in done.stderr


def five_lines(tmp_path: Path) -> str:
    done = run(str(tmp_path / "sample"), "--rows", "30", "--devices", "2", "--seed", "7")
    assert done.returncode == 0, done.stderr
    program = "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("#"))
    assert len(ast.parse(program).body) == len(program.splitlines()) == 5
    return program


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_printed_lines_run_as_they_stand(spark: Any, tmp_path: Path) -> None:
    """In this process, whose session they find; the next test runs them as a program and reads what they print."""
    names: dict[str, Any] = {}
    exec(five_lines(tmp_path), names)
    assert names["rows"].columns[0] == "topic"
    (consumer,) = standings(tmp_path / "sample" / "spool")
    assert consumer.name.startswith("telemetry.")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_printed_lines_are_a_program(tmp_path: Path) -> None:
    program = five_lines(tmp_path)
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=200)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("plant/press-0/temperature") >= 10
    assert '{"sensor": "press-0/temperature", "value": ' in shown.stdout
