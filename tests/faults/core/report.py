"""What a harness found: counts for people, problems for the exit code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

SHOWN_MAX: Final = 20
"""So many problems are kept in words; the rest are only counted."""


@dataclasses.dataclass
class Figures:
    """The outcome of one harness, or of one of its mutants."""

    harness: str
    seed: int
    mutant: str | None = None
    counts: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    problem_count: int = 0

    def add(self, name: str, count: float = 1) -> None:
        """Count something."""
        self.counts[name] = self.counts.get(name, 0) + count

    def most(self, name: str, value: float) -> None:
        """Keep the largest value."""
        self.counts[name] = max(self.counts.get(name, 0), value)

    def problem(self, kind: str, text: str) -> None:
        """Something that must not be; `kind` is counted."""
        self.problem_count += 1
        self.add(kind)
        shown = f"{kind}: {text}"
        if len(self.problems) < SHOWN_MAX and shown not in self.problems:
            self.problems.append(shown)

    def found(self, kinds: Sequence[str]) -> bool:
        """Whether there was a problem of one of these kinds."""
        return any(self.counts.get(kind, 0) for kind in kinds)

    def expect(self, *kinds: str) -> None:
        """Show these counts even if they stay 0."""
        for kind in kinds:
            self.counts.setdefault(kind, 0)

    def merge(self, other: Figures) -> None:
        """Take in what another process found."""
        for name, count in other.counts.items():
            if name.startswith("longest"):
                self.most(name, count)
            else:
                self.add(name, count)
        self.problem_count += other.problem_count
        self.problems = (self.problems + other.problems)[:SHOWN_MAX]

    def line(self) -> str:
        """One line for people."""
        parts = [f"{name.replace('_', ' ')} {_number(count)}" for name, count in self.counts.items()]
        return f"{self.harness + (f' [{self.mutant}]' if self.mutant else ''):<28} {', '.join(parts)}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Figures:
        return cls(**json.loads(text))


def _number(count: float) -> str:
    return f"{count:,.0f}" if count == int(count) else f"{count:,.3f}"
