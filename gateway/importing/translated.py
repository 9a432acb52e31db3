"""The result of translating a `mosquitto.conf`, with an answer for each line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Directive
from gateway.importing.options import Option, Outcome, option_of


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """A row of the report. `where`: FILE:LINE. `name`: the option. `text`: the consequence, or the cure."""

    outcome: Outcome
    where: str
    name: str
    text: str = ""

    def __str__(self) -> str:
        return " ".join(f"{self.outcome:<10}  {self.where}  {self.name}  {self.text}".rstrip().splitlines())


@dataclass(slots=True)
class Translated:
    """The result of a translation.

    `settings`: our YAML as dictionaries. `files`: files to copy, by their names in the new folder. `secrets`:
    contents of private files by name. `database`: paths where Mosquitto may keep its database. `local_sessions`: maps
    the client id of each of Mosquitto's bridges in its own database to the name of our bridge.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    answers: list[LineAnswer] = field(default_factory=list)
    database: list[Path] = field(default_factory=list)
    local_sessions: dict[str, str] = field(default_factory=dict)

    @property
    def refusals(self) -> list[LineAnswer]:
        """The answers stopping the import."""
        return [one for one in self.answers if one.outcome is Outcome.REFUSED]

    @property
    def report(self) -> list[LineAnswer]:
        """All answers, the worst last."""
        order = list(Outcome)
        return sorted(self.answers, key=lambda one: order.index(one.outcome))

    def take_directive(self, one: Directive, text: str = "") -> None:
        self.answers.append(LineAnswer(Outcome.TAKEN, one.where, one.name, text))

    def add_change(self, one: Directive, text: str) -> None:
        self.answers.append(LineAnswer(Outcome.CHANGED, one.where, one.name, text))

    def add_refusal(self, one: Directive, text: str) -> None:
        self.answers.append(LineAnswer(Outcome.REFUSED, one.where, one.name, text))

    def add_note(self, where: str, text: str) -> None:
        """Adds a change no line of the configuration causes."""
        self.answers.append(LineAnswer(Outcome.CHANGED, where, "-", text))

    def answer(self, one: Directive, option: Option | None = None) -> None:
        """Answers a line by `option`, or by the row of the line's own option."""
        option = option or option_of(one.name)
        if option is None:
            self.add_refusal(one, "is no option of Mosquitto 2.0 or 2.1; correct it or take it out")
        elif one.value.replace(" ", "") in option.like_ours or one.words[:1] in [[v] for v in option.like_ours]:
            self.answers.append(LineAnswer(Outcome.NEEDLESS, one.where, one.name, "it is so here"))
        else:
            self.answers.append(LineAnswer(option.outcome, one.where, one.name, option.text))
