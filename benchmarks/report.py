"""Holds everything a benchmark found, prints it and saves it."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bounds, environments, facts, table
from benchmarks.session import Session
from benchmarks.summary import Figures


@dataclass(frozen=True)
class Report:
    """All figures of one invocation and the reasons for those that are missing."""

    machine: facts.Facts
    sessions: dict[str, Session]
    figures: dict[str, Figures]
    unavailable: dict[str, str]
    """Peers that could not be installed, and why."""
    own: dict[str, float]
    own_failures: dict[str, str]

    def bounds(self) -> list[bounds.Bound]:
        """Compare with what stepscope must keep."""
        return bounds.check(self.figures, self.own)

    def text(self, *, markdown: bool) -> str:
        """The table, what it was measured on, what is missing from it, own figures, the bounds."""
        rows = table.rows(self.figures, self.unavailable)
        drawn = table.markdown(table.for_readme(rows)) if markdown else table.terminal(rows)
        parts = [drawn]
        parts.append(f"{self._measured_on()}\n{self._versions()}")
        if reasons := self._reasons():
            parts.append("\n".join(reasons))
        if self.own:
            own = [["stepscope alone", "figure"], *([n, _plain(v)] for n, v in self.own.items())]
            parts.append(table.markdown(own) if markdown else table.terminal(own))
        parts.append("\n".join(("- " if markdown else "") + str(bound) for bound in self.bounds()))
        return "\n\n".join(parts)

    def save(self, path: Path) -> None:
        """Write all samples, so that any figure can be traced back."""
        peers = {
            name: {
                "versions": environments.versions(session.peer, session.python),
                "figures": dataclasses.asdict(self.figures.get(name, Figures())),
                "sizes": session.sizes,
                "failures": session.failures,
                "samples": session.samples,
            }
            for name, session in self.sessions.items()
        }
        results = {
            "machine": self.machine,
            "peers": peers,
            "unavailable": self.unavailable,
            "own": self.own,
            "own_failures": self.own_failures,
            "bounds": [{**dataclasses.asdict(b), "met": b.met} for b in self.bounds()],
        }
        path.write_text(json.dumps(results, indent=2) + "\n")

    def _measured_on(self) -> str:
        machine = self.machine
        return (
            f"{machine['command']} on {machine['cores']} cores of {machine['cpu']},"
            f" Python {machine['python']}, {machine['date']}."
        )

    def _versions(self) -> str:
        versions: dict[str, str] = {}
        for session in self.sessions.values():
            versions |= environments.versions(session.peer, session.python)
        return ", ".join(f"{name} {version}" for name, version in versions.items()) + "."

    def _reasons(self) -> list[str]:
        lines = [f"{name}: not available: {reason}" for name, reason in self.unavailable.items()]
        for name, session in self.sessions.items():
            lines += [f"{name}: {reason}" for reason in session.failures.values()]
        return lines + [f"stepscope: {reason}" for reason in self.own_failures.values()]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
