"""A build.ninja file, as text."""

import shlex
from collections.abc import Iterable, Mapping


class NinjaFile:
    """Collects rules and build statements."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def rule(self, name: str, command: Iterable[str], **settings: str) -> None:
        """A rule; of its command's words, those that hold a $ are ninja's variables."""
        words = (word if "$" in word else _escape(shlex.quote(word)) for word in command)
        lines = [f"rule {name}", f"  command = {' '.join(words)}"]
        lines += [f"  {key} = {value}" for key, value in settings.items()]
        self._parts.append("\n".join(lines))

    def build(
        self,
        output: object,
        rule: str,
        inputs: Iterable[object],
        *,
        implicit: Iterable[object] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """A file to make. `implicit` inputs trigger a rebuild but are not in $in."""
        line = f"build {_path(output)}: {rule} {' '.join(map(_path, inputs))}"
        if after := " ".join(map(_path, implicit)):
            line += f" | {after}"
        values = [f"  {key} = {_escape(value)}" for key, value in (variables or {}).items()]
        self._parts.append("\n".join([line, *values]))

    def text(self) -> str:
        return "\n\n".join(self._parts) + "\n"


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(path: object) -> str:
    return _escape(str(path)).replace(" ", "$ ").replace(":", "$:")
