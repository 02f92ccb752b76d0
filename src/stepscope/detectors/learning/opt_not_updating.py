"""Detects trainable parameters that no optimizer updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Evidence, Finding, Remedy
from stepscope.schema.keys import phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

REBUILT = """\
model.head = nn.Linear(features, classes)                        # first change the model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)       # then create the optimizer
# or add the new parameters: optimizer.add_param_group({"params": model.head.parameters()})"""

STEP = """\
loss.backward()
optimizer.step()
optimizer.zero_grad()"""

CONFIGURED = """\
def configure_optimizers(self):
    return torch.optim.AdamW(self.parameters(), lr=1e-3)  # all parts of the module, not one of them"""

FROZEN = Remedy(
    "If they should not be trained, freeze them: then no gradients are computed for them.",
    "model.backbone.requires_grad_(False)",
    "PyTorch",
)


@dataclass(frozen=True)
class NotUpdating(Detector):
    """Reads which parameters get gradients and are in no optimizer."""

    id: ClassVar[str] = "opt.not_updating"
    title: ClassVar[str] = "Trainable parameters are never updated"
    sentence: ClassVar[str] = (
        "parameters of the watched model get gradients, but no optimizer has them and nothing changes them; "
        "or the optimizer never steps"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((phase_key("optimizer"),),)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False  # all ranks build the same optimizer
    is_optional: ClassVar[bool] = True

    tensors: Annotated[int, Range(1)] = 1
    """Minimum number of trainable tensors that are in no optimizer."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        fields = setups[-1].fields if setups else {}
        never_updated = fields.get("never_updated")
        if isinstance(never_updated, dict):
            return self._never_stepped(rank, window, never_updated)
        not_updated = fields.get("not_updated")
        if not isinstance(not_updated, dict):
            return TooLittleEvidence("Needs a watched model, and about 20 steps of its optimizers.")
        if "unknown" in not_updated:
            return TooLittleEvidence(f"Could not be checked: {not_updated['unknown']}.")
        if not not_updated["tensors"]:
            return "All trainable parameters with gradients are updated."
        if not_updated["tensors"] < self.tensors:
            return f"{not_updated['tensors']:,} of the trainable tensors with gradients are in no optimizer."
        return self._finding(rank, window, fields, not_updated)

    def _never_stepped(self, rank: RankWindow, window: Window, facts: Mapping[str, Any]) -> Finding:
        batches, optimizers = int(facts["batches"]), ", ".join(map(str, facts["optimizers"]))
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The optimizer ({optimizers}) has not stepped in the first {batches:,} batches: the "
            "model does not learn.",
            detail="Gradients are computed, and nothing applies them or changes the parameters otherwise.",
            severity="warning",
            confidence=0.95,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("batches without an optimizer step", f"{batches:,}", optimizers),
                Evidence("parameters", "unchanged", "a trainable one was read after each of these batches"),
            ),
            ruled_out=("Updates by hand: these would have changed the parameter.",),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Call `optimizer.step()` after `loss.backward()`.",
                {"torch": STEP, "lightning": STEP},
            ),
            tries=("call optimizer.step() after loss.backward()",),
            how="A trainable parameter is read after each batch until an optimizer steps or it changes.",
            refs=("https://pytorch.org/docs/stable/optim.html#taking-an-optimization-step",),
        )

    def _finding(
        self, rank: RankWindow, window: Window, fields: Mapping[str, Any], not_updated: Mapping[str, Any]
    ) -> Finding:
        tensors, count, names = not_updated["tensors"], not_updated["parameters"], not_updated["names"]
        trainable, all_tensors = fields["trainable_parameters"], fields["trainable_tensors"]
        share = percent(count / trainable) if trainable else "0%"
        more = f" and {tensors - len(names):,} more" if tensors > len(names) else ""
        tensor, is_or_are = ("tensor", "is") if tensors == 1 else ("tensors", "are")
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{tensors:,} trainable {tensor} ({share} of the trainable parameters) {is_or_are} "
            f"in no optimizer: `{names[0]}`{' and others' if tensors > 1 else ''}.",
            detail="They get gradients, but keep their first values. Most often the optimizer was created "
            "before the model was changed, or with the parameters of only a part of it.",
            severity="warning",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("tensors in no optimizer", f"{tensors:,}", f"of {all_tensors:,} trainable tensors"),
                Evidence("parameters in them", f"{count:,}", f"of {trainable:,} trainable parameters"),
                Evidence("names", f"{', '.join(names)}{more}"),
            ),
            ruled_out=(
                "Frozen parameters: these require gradients.",
                "Parameters that have no part in the loss: these get gradients.",
                "An optimizer that steps later: none of the program has them.",
            ),
            remedies=(*_remedies(window, rank.rank), FROZEN),
            tries=("create the optimizer after the last change of the model", "freeze what is not trained"),
            how="The parameters of the watched models are compared with those of all optimizers after about "
            "10 steps, 10 steps later, and once a minute.",
            refs=("https://pytorch.org/docs/stable/optim.html#constructing-it",),
        )


def _remedies(window: Window, rank: int) -> tuple[Remedy, ...]:
    return remedies_in(
        window.libraries(rank),
        "Create the optimizer after the last change of the model, with all of its parameters.",
        {"torch": REBUILT, "lightning": CONFIGURED},
    )
