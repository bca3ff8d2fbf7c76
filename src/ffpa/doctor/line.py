"""A line of the examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]
WIDTH = 16


@dataclass(frozen=True)
class Line:
    """What was looked at and found; anything but ok says what to do about it."""

    name: str
    state: State
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        if (self.state == "ok") == bool(self.fix):
            raise ValueError(f"{self.name}: a fix belongs to every line that is not ok")


def show(line: Line) -> str:
    """The line as printed, its fix below it."""
    text = f"{line.state:<4}  {line.name:<{WIDTH}}  {line.found}"
    return f"{text}\n{'':<{WIDTH + 8}}→ {line.fix}" if line.fix else text
