"""`veilmq top`: findings, alarms and charts of a member; a running one, and one that is not there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gateway.attached import Attached
from gateway.base import parse
from gateway.cli import run
from gateway.commands.top import BLOCKS, WIDTH, chart, series
from tests.gateway.harness import serving
from tests.ports import free_ports


def test_a_chart_is_as_wide_as_the_time_and_blank_where_nothing_was_kept() -> None:
    drawn = chart([(30.0, 0.0), (31.0, 4.0), (59.9, 8.0)], 0.0, 60.0)
    assert len(drawn) == WIDTH
    assert drawn[:30].strip() == ""
    assert (drawn[30], drawn[31], drawn[59]) == ("▁", BLOCKS[1 + round(4 / 8 * 7)], "█")
    assert chart([], 0.0, 60.0) == " " * WIDTH
    assert chart([(99.0, 0.0)], 0.0, 60.0)[-1] == "▁"


def test_a_series_is_of_one_figure_since_a_time() -> None:
    day = {"fields": ["at", "clients"], "rows": [[10, 1.0], [70, 2.0]]}
    assert series(day, "clients", 60) == [(70, 2.0)]
    assert series(day, "unknown", 0) == []


def test_a_running_broker_and_one_that_is_not(tmp_path: Path, veilmq: Any, capsys: Any) -> None:
    (port,) = free_ports(1)
    config = {"metrics": {"bind": f"127.0.0.1:{port}"}, "data": str(tmp_path / "data")}
    (tmp_path / "b.yaml").write_text(json.dumps(config))

    async def go() -> tuple[int, int]:
        attached = Attached(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **config}), None)
        async with serving(config, before_serving=attached.begin_parts):
            assert attached._day is not None
            await attached._day.take_row()
            once = await asyncio.to_thread(run, ["top", "-c", str(tmp_path / "b.yaml"), "--once"])
            as_json = await asyncio.to_thread(run, ["top", "-c", str(tmp_path / "b.yaml"), "--json"])
        await attached.end_parts()
        return once, as_json

    assert asyncio.run(go()) == (0, 0)
    drawn, _, content = capsys.readouterr().out.partition("{")
    assert "well, 0 clients" in drawn
    assert "clients connected" in drawn
    day = json.loads("{" + content)
    assert day["rows"]  # the broker may have taken one by itself, too
    assert day["status"]["level"] == "well"
    status, out, _ = veilmq("top", "-c", tmp_path / "b.yaml", "--once")
    assert status == 2
    assert "nothing answers at" in out
    (tmp_path / "bare.yaml").write_text("{}")
    status, _, err = veilmq("top", "-c", tmp_path / "bare.yaml")
    assert (status, err.count("\n")) == (2, 1)
    assert "has no metrics section" in err
