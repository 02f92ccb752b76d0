"""What a case declares: the script, the planted fault, and what the diagnosis must and must not say."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(__file__).resolve().parent / "cases"

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclass(frozen=True)
class Case:
    """One script, and what is true of it."""

    name: str
    fault: str = ""
    """The planted fault in a few words; empty for a healthy run."""

    expects: tuple[tuple[str, ...], ...] = ()
    """For each fault, the ids of findings that name it: the best one first, then acceptable ones. The id of a
    verdict, such as `status.failed`, counts as well."""

    advice: tuple[str, ...] = ()
    """What the remedies must contain; `a|b` is either of them."""

    wrong_advice: tuple[str, ...] = ()
    """What the remedies must not contain."""

    names: tuple[str, ...] = ()
    """What headline, detail or evidence must contain, such as the layer or the rank."""

    also: tuple[str, ...] = ()
    """Findings that are true as well, and may be reported after the expected ones."""

    doses: tuple[float, ...] = (1.0,)
    """Strengths of the fault for a full run; all others take 1."""

    begins: int = 0
    """The step at which the fault begins."""

    has_control: bool = False
    """Whether dose 0 is the same training without the fault, which shows what a fix gains."""

    script: str = ""
    """Its file in `cases/`, without `.py`; the name, if it is not given."""

    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    is_long: bool = False
    """Whether it takes more than a minute and is left to full runs."""

    @property
    def file(self) -> Path:
        """The script."""
        return SCRIPTS / f"{self.script or self.name}.py"

    @property
    def is_healthy(self) -> bool:
        """Whether the diagnosis must find nothing."""
        return not self.expects

    @property
    def all_expected(self) -> frozenset[str]:
        """The ids of all findings that name one of the faults."""
        return frozenset(name for group in self.expects for name in group)

    def without_fault(self) -> "Case":
        """The same script at dose 0."""
        return Case(f"{self.name} (without the fault)", script=self.file.stem, launcher=self.launcher)
