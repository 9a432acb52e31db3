"""`veilmq ingest`: what each command hands on, what it prints, and one line for what a user gets wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_ingest.cli import EXIT_BAD_INPUT, ingest_app, one_line
from spark_ingest.errors import BadOption, IngestError
from spark_ingest.jobs.runs import JOBS
from spark_ingest.sample.spool import write_sample


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """(exit status, standard output, standard error)."""
    result = CliRunner().invoke(ingest_app, [str(each) for each in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadOption("cap_bytes=-1\n  is no size"), "veilmq: cap_bytes=-1 is no size\n"),
        (
            PermissionError(13, "Permission denied", "spool"),
            "veilmq: spool: Permission denied; correct the path, its owner or its permissions\n",
        ),
        (ModuleNotFoundError("No module named 'pyspark'"), "pip install 'veilmq[spark]'\n"),
    ],
)
def test_what_a_user_can_cause_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, said: str) -> None:
    def fails() -> int:
        raise error

    assert one_line(fails)() == EXIT_BAD_INPUT
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.endswith(said)


def test_a_defect_of_ours_is_shown_as_one() -> None:
    def fails() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        one_line(fails)()
    assert one_line(lambda: 7)() == 7


@pytest.mark.parametrize(
    ("command", "default"), [("run", "10"), ("run", "8 GiB"), ("run", "main"), ("pack", "all"), ("redrive", "all")]
)
def test_the_help_tells_defaults(command: str, default: str) -> None:
    """What stands in brackets is markup to who prints it, and vanishes."""
    shown = CliRunner().invoke(ingest_app, [command, "--help"]).stdout
    assert f"(default: {default})" in " ".join(shown.replace("│", " ").split())


def test_a_receiver_gets_what_was_said_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    daemon = "spark_ingest.receiver.daemon"
    monkeypatch.setattr(f"{daemon}.receiver_options", lambda config, told: (config, told))
    monkeypatch.setattr(f"{daemon}.serve", lambda *what: asked.append(what) or 3)
    said = ("--spool", "s", "--shard", "1/2", "--metrics", "h:1", "--workers", "2")
    status, _, _ = run("run", "--config", tmp_path / "r.yaml", *said)
    assert status == 3
    (((config, told), metrics, workers, *_),) = asked
    assert (config, metrics, workers) == (tmp_path / "r.yaml", "h:1", 2)
    assert {name: value for name, value in told.items() if value is not None} == {"spool": "s", "shard": "1/2"}
    assert {"identity", "overlay", "grants", "topics", "cap_bytes", "incomplete_s"} <= set(told)


def test_jobs_are_listed_and_one_needs_spool_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run("jobs")
    assert status == 0
    assert all(name in out for name in JOBS)
    for arguments in (["windows"], ["windows", "--spool", "s"], ["windows", "--grants", "g"]):
        status, out, err = run("jobs", *arguments)
        assert (status, out) == (EXIT_BAD_INPUT, "")
        assert err == "veilmq: a job needs the spool and its keys; add --spool DIR --grants FILE\n"
    asked: list[Any] = []
    monkeypatch.setattr("spark_ingest.jobs.runs.run_job", lambda *told, **how: asked.append((told, how)) or 1)
    status, _, _ = run("jobs", "late", "--spool", "s", "--grants", "g", "--late-after", "3 seconds", "--once")
    assert status == 1
    ((name, spool, grants, topics, settings), how) = asked[0]
    assert (name, spool, grants, topics) == ("late", Path("s"), Path("g"), "#")
    assert settings.late_after == "3 seconds"
    assert how == {"as_json": False, "once": True}


def test_a_sample_says_what_it_holds_and_prints_a_program(tmp_path: Path) -> None:
    status, out, err = run("sample", tmp_path / "sample", "--rows", "30", "--devices", "3")
    assert (status, err) == (0, "")
    assert out.startswith(f"# {tmp_path}/sample/spool: 30 rows of telemetry, ")
    compile(out, "sample", "exec")
    status, out, err = run("sample", tmp_path / "sample")
    assert (status, out, err.count("\n")) == (EXIT_BAD_INPUT, "", 1)


def test_status_and_consumers_of_a_spool(tmp_path: Path) -> None:
    made = write_sample(tmp_path / "sample", rows=30, devices=3)
    status, out, _ = run("status", made.spool)
    assert (status, bool(out.strip())) == (0, True)
    status, out, _ = run("status", made.spool, "--json")
    assert '"receivers"' in out
    assert run("consumers", made.spool)[0] == 0
    status, out, err = run("consumers", made.spool, "--forget", "nobody")
    assert (status, out) == (EXIT_BAD_INPUT, "")
    assert err == f"veilmq: nobody reads nothing from {made.spool}; known: nobody\n"


@pytest.mark.parametrize(
    ("command", "module", "cure"),
    [
        (["dashboard", "--spool", "s", "--grants", "g"], "spark_ingest.dashboard.page", "veilmq[spark,dashboard]"),
        (["status", "s"], "spark_ingest.spool.status", "veilmq[spark]"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, command: list[str], module: str, cure: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    status, out, err = run(*command)
    assert (status, out, err.count("\n")) == (EXIT_BAD_INPUT, "", 1)
    assert f"pip install '{cure}'" in err


def test_a_dashboard_gets_every_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    page = pytest.importorskip("spark_ingest.dashboard.page")
    asked: list[Any] = []
    answer: Callable[..., int] = lambda *told: asked.append(told) or 0  # type: ignore[func-returns-value]  # noqa: E731
    monkeypatch.setattr(page, "serve", answer)
    run("dashboard", "--spool", "s", "--grants", "g", "--metrics", "http://a", "--metrics", "http://b")
    run("dashboard", "--spool", "s", "--grants", "g", "--bind", "127.0.0.1:1", "--cap-bytes", "7")
    assert asked == [
        (Path("s"), Path("g"), ["http://a", "http://b"], "127.0.0.1:8090", None),
        (Path("s"), Path("g"), [], "127.0.0.1:1", 7),
    ]
    assert issubclass(BadOption, IngestError)
