"""`veilmq simulate`: what it prints, where pictures go, and what an operator can get wrong."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.loads import Costs
from papers.simulating import simulate
from papers.simulating.simulate import EXPERIMENTS, RunOptions, SimulateError, costs_of, measure, print_figure

FIGURE = Figure(
    experiment="toy",
    number="1",
    title="A toy [of ours]",
    x_label="x",
    y_label="y",
    series=(Series("one", (0.0, 1.0, 2.0), (0.0, 0.5, 1.0)), Series("two", (0.0, 1.0, 2.0), (1.0, 0.1, 0.0))),
    columns=("x", "one", "what"),
    rows=((0.0, 0.123456, "[low]"), (1.0, 123456.7, "high")),
    notes=("The paper says so [1].",),
)


class Toy:
    """An experiment that notes how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, object, object]] = []

    def plain(self, seed: int, progress: Progress) -> Figure:
        progress(0.5)
        progress(1.0)
        self.calls.append((seed, None, None))
        return FIGURE

    def timed(self, seed: int, progress: Progress, *, costs: Costs | None = None, clock: object = None) -> Figure:
        self.calls.append((seed, costs, clock))
        return FIGURE


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    made = Toy()
    module = SimpleNamespace(FIGURES={"1": made.plain, "2": made.timed})
    real = importlib.import_module
    monkeypatch.setattr(simulate, "EXPERIMENTS", {"toy": "toy.module"})
    monkeypatch.setattr(importlib, "import_module", lambda name: module if name == "toy.module" else real(name))
    monkeypatch.setattr(simulate, "measure", lambda: Costs(parse_us=7.0))
    monkeypatch.chdir(tmp_path)
    return made


class FakeMatplotlib:
    """Records what is drawn: pictures are tested without the optional extra."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            if name == "savefig":
                Path(args[0]).write_bytes(b"picture")
            return self

        return call

    def __enter__(self) -> FakeMatplotlib:
        return self

    def __exit__(self, *_: object) -> None: ...

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeMatplotlib:
    made = FakeMatplotlib()
    before = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: made if name.startswith("matplotlib") else before(name)
    )
    return made


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    before = importlib.import_module

    def without(name: str) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return before(name)

    monkeypatch.setattr(importlib, "import_module", without)


# ------------------------------------------------------------------------------------------------ commands


def test_table_notes_and_a_picture_in_the_current_directory(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    assert simulate.simulate("toy", "1", 5, None, as_json=False) == 0
    out, err = capsys.readouterr()
    assert toy.calls == [(5, None, None)]
    for text in ("toy, figure 1: A toy", "[of ours]", "0.123", "123,457", "[low]", "The paper says so [1]."):
        assert text in out
    assert out.endswith("picture in toy-1.svg\n")
    assert Path("toy-1.svg").read_bytes() == b"picture"
    assert err == ""


def test_json_is_all_of_the_figure_and_draws_only_where_it_is_told(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    assert simulate.simulate("toy", "1", 5, None, as_json=True) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["rows"] == [[0.0, 0.123456, "[low]"], [1.0, 123456.7, "high"]]
    assert content["columns"] == ["x", "one", "what"]
    assert content["series"][1] == {
        "name": "two", "xs": [0.0, 1.0, 2.0], "ys": [1.0, 0.1, 0.0], "intervals": [],
    }  # fmt: skip
    assert not list(Path().iterdir())
    assert simulate.simulate("toy", "1", 5, Path("here.png"), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == content
    assert Path("here.png").exists()


def test_costs_and_clock_go_to_those_who_ask(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    simulate.simulate("toy", "2", 1, None, as_json=True)
    ((seed, costs, clock),) = toy.calls
    assert (seed, costs) == (1, Costs(parse_us=7.0))
    assert callable(clock)


@pytest.mark.usefixtures("absent")
def test_without_matplotlib_the_table_is_there_and_one_line_says_why_the_picture_is_not(toy: Toy, capsys: Any) -> None:
    assert simulate.simulate("toy", "1", 5, Path("a.png"), as_json=False) == 0
    out, err = capsys.readouterr()
    assert "0.123" in out
    assert "picture" not in out
    assert err == "veilmq: no picture in a.png: matplotlib is not installed; pip install 'veilmq[sim]'\n"
    assert not Path("a.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing", "1", None), "no experiment nothing; take one of toy"),
        (("toy", "3", None), "toy has no figure 3; take one of 1, 2"),
        (("toy", "1", "a.jpg"), "cannot tell the format of a.jpg; end it in .svg or .png"),
        (("toy", "1", "no/where/a.svg"), "there is no directory no/where; make it or choose another --out"),
    ],
)
def test_a_mistake_is_one_line_before_anything_runs(
    toy: Toy, arguments: tuple[str, str, str | None], says: str
) -> None:
    experiment, number, out = arguments
    with pytest.raises(SimulateError, match=f"^{says}$"):
        simulate.simulate(experiment, number, 1, Path(out) if out else None, as_json=False)
    assert not toy.calls


def test_a_picture_that_cannot_be_written_is_one_line(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    Path("taken.svg").mkdir()
    with pytest.raises(SimulateError, match=r"^cannot write taken\.svg: .*; choose another --out$"):
        simulate.simulate("toy", "1", 1, Path("taken.svg"), as_json=False)
    assert "0.123" in capsys.readouterr().out, "the run was not for nothing"


def test_eventguard_offers_the_figures_of_the_paper_and_runs_one(tmp_path: Path, capsys: Any) -> None:
    offered = importlib.import_module(EXPERIMENTS["eventguard"]).FIGURES
    assert set(offered) == {"4", "5", "6", "saturation", "table-1"}
    with pytest.raises(SimulateError, match="eventguard has no figure 9"):
        simulate.simulate("eventguard", "9", 1, None, as_json=False)


def test_costs_may_be_told_instead_of_measured(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    told = RunOptions(costs=costs_of(["verify_us=3", "sign_us=4.5"]))
    simulate.simulate("toy", "2", 1, None, as_json=True, options=told)
    assert toy.calls[-1][1] == Costs(parse_us=7.0, verify_us=3.0, sign_us=4.5)


@pytest.mark.parametrize(
    ("text", "says"), [("nothing=3", "no cost nothing"), ("verify_us=x", "verify_us=x is no time")]
)
def test_a_cost_that_is_none(text: str, says: str) -> None:
    with pytest.raises(SimulateError, match=says):
        costs_of([text])


def test_what_a_figure_does_not_take_is_refused(toy: Toy) -> None:
    with pytest.raises(SimulateError, match="toy 1 has no --share; leave it out"):
        simulate.simulate("toy", "1", 1, None, as_json=True, options=RunOptions(told={"share": 0.5}))
    assert not toy.calls


def test_all_figures_make_a_page_and_go_on_where_they_were(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    for _ in range(2):
        assert simulate.simulate_all(3, Path("page"), as_json=False, options=RunOptions(), quick=True) == 0
    assert [seed for seed, _, _ in toy.calls] == [3, 3]
    assert "page in page/index.html" in capsys.readouterr().out
    assert "Seed 3, runs 1" in Path("page/index.html").read_text("utf-8")
    assert simulate.simulate_all(3, Path("page"), as_json=True, options=RunOptions(), quick=True) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_one_experiment_makes_a_page_of_its_own(toy: Toy, fake: FakeMatplotlib, capsys: Any) -> None:
    assert simulate.simulate_all(3, Path("page"), False, RunOptions(), quick=True, only="toy") == 0
    assert "2 figures; page in page/index.html" in capsys.readouterr().out
    page = Path("page/index.html").read_text("utf-8")
    assert "href='#toy-1'" in page
    assert "numbers of the papers" not in page, "nothing of it is compared"
    with pytest.raises(SimulateError, match="no experiment other; take one of toy"):
        simulate.simulate_all(3, Path("page"), False, RunOptions(), quick=True, only="other")


def test_without_recorded_data_the_other_figures_are_made(
    toy: Toy, fake: FakeMatplotlib, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "EXPERIMENTS", {"toy": "toy.module", "real": "no.such.module"})
    monkeypatch.setattr(simulate.real_data, "lacking", lambda: "topohub is missing; install it")
    assert simulate.simulate_all(3, Path("page"), False, RunOptions(), quick=True) == 0
    assert capsys.readouterr().err == "veilmq: no figures on recorded data: topohub is missing; install it\n"
    with pytest.raises(SimulateError, match=r"^topohub is missing; install it$"):
        simulate.simulate_all(3, Path("page"), False, RunOptions(), quick=True, only="real")


def test_a_page_that_cannot_be_made_is_one_line(toy: Toy) -> None:
    Path("taken").write_text("")
    with pytest.raises(SimulateError, match=r"cannot make taken: .*; choose another --html"):
        simulate.simulate_all(1, Path("taken"), as_json=False, options=RunOptions(), quick=True)


def test_a_narrow_terminal_cuts_nothing() -> None:
    text = io.StringIO()
    print_figure(FIGURE, Console(file=text, width=24))
    assert "123,457" in text.getvalue()


# ------------------------------------------------------------------------------------------------ measuring


def test_every_cost_is_measured_from_a_call_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "ROUNDS", 1)
    monkeypatch.setattr(simulate, "ROUND_S", 0.0)
    costs = measure()
    assert all(getattr(costs, field.name) > 0 for field in dataclasses.fields(Costs))
    assert {name for name, _, _ in simulate._operations()} == {field.name for field in dataclasses.fields(Costs)}
