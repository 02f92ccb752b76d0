"""Real trainings with parameters that are never updated or a forgotten mode, and those that are fine."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.attach.environment import attached
from stepscope.steps.evidence.training_setup import parameters

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.usefixtures("without_agent")

STEPS = 45
IDS = {"opt.not_updating", "mode.train_eval"}


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


def train(monitor: Any, model: Any, optimizer: Any, steps: int = STEPS, *, in_batches: bool = False) -> None:
    batches = [torch.ones(6, 4) + number for number in range(steps)]
    for batch in monitor.batches(batches) if in_batches else batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


@pytest.fixture
def recorded(folder: Path) -> Callable[..., dict[str, Any]]:
    """Trains under a monitor; returns the findings on models, by id, and the newest setup."""

    def record(loop: Callable[[Any], None]) -> dict[str, Any]:
        with stepscope.TrainingMonitor(run="loop", directory=folder, strict=True) as monitor:
            loop(monitor)
        run = stepscope.open_store(folder).run("loop")
        diagnosis = run.diagnose()
        findings = {finding.id: finding for finding in diagnosis.findings if finding.id in IDS}
        reasons = {check.id: check.why_not for check in diagnosis.considered if check.id in IDS}
        assert not [reason for reason in reasons.values() if "failed" in reason]
        return {**run.own_events("census")[-1].fields, "findings": findings, "reasons": reasons}

    return record


def was_checked(setup: dict[str, Any]) -> bool:
    """Whether parameters were compared, and none was left out."""
    return setup["not_updated"] == {"tensors": 0, "parameters": 0, "names": []}


@pytest.mark.parametrize(
    ("resets", "kept", "changes"),
    [
        (lambda optimizer: None, 4, 1),
        (lambda optimizer: optimizer.zero_grad(), 0, 0),
        (lambda optimizer: optimizer.zero_grad(set_to_none=False), 4, 2),
    ],
)
def test_gradients_that_are_kept_are_distinguished_from_replaced_ones(recorded, resets, kept, changes):
    def loop(monitor: Any) -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        monitor.watch(model, optimizer)
        for _ in range(STEPS):
            resets(optimizer)
            model(torch.ones(6, 4)).square().mean().backward()
            optimizer.step()

    fields = recorded(loop)["kept_gradients"]
    assert fields == {"tensors": 4, "kept": kept, "changes_per_step": changes}


@pytest.mark.slow
@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("names_optimizer", [False, True])
def test_a_head_that_was_replaced_after_the_optimizer_was_created_is_reported(
    recorded, in_batches, names_optimizer
) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model[4] = nn.Linear(8, 3)
        monitor.watch(model, optimizer if names_optimizer else None)
        train(monitor, model, optimizer, in_batches=in_batches)

    setup = recorded(loop)
    assert setup["not_updated"] == {"tensors": 2, "parameters": 27, "names": ["4.weight", "4.bias"]}
    assert setup["trainable_tensors"] == 6
    assert setup["findings"].keys() == {"opt.not_updating"}
    assert "`4.weight`" in setup["findings"]["opt.not_updating"].headline


@pytest.mark.parametrize(
    "create",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        lambda parameters: torch.optim.AdamW(parameters, fused=True),
        lambda parameters: torch.optim.Adam(parameters, foreach=True),
    ],
)
def test_an_optimizer_with_all_parameters_is_fine(recorded, create) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = create(model.parameters())
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert was_checked(setup)
    assert setup["mode"] == {"training": True}
    assert setup["findings"] == {}


@pytest.mark.slow
def test_the_optimizer_of_only_a_part_is_reported_though_all_gradients_are_deleted_after_a_step(
    recorded,
) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.AdamW(model[4].parameters(), fused=True)
        monitor.watch(model, optimizer)
        for batch in monitor.batches([torch.ones(6, 4)] * STEPS):
            model(batch).square().mean().backward()
            optimizer.step()
            model.zero_grad()

    setup = recorded(loop)
    assert setup["not_updated"]["names"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert "opt.not_updating" in setup["findings"]


def test_a_frozen_backbone_is_fine(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        model[:4].requires_grad_(requires_grad=False)
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert was_checked(setup)
    assert setup["findings"] == {}


def test_a_target_network_without_gradients_is_fine(recorded) -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = network()
            self.target = copy.deepcopy(self.policy)

        def forward(self, x):
            with torch.no_grad():
                aim = self.target(x)
            return self.policy(x) - 0.9 * aim

    def loop(monitor: Any) -> None:
        model = Agent()
        optimizer = torch.optim.SGD(model.policy.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    assert was_checked(recorded(loop))


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("is_faulty", [False, True])
def test_two_models_with_an_optimizer_each_are_checked_against_both(recorded, every, is_faulty) -> None:
    def loop(monitor: Any) -> None:
        generator, critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        slow = torch.optim.Adam(generator.parameters())
        quick = torch.optim.Adam(critic[0].parameters() if is_faulty else critic.parameters())
        monitor.watch(generator)
        monitor.watch(critic)
        for number in range(5 * STEPS):
            x = torch.randn(6, 4)
            quick.zero_grad()
            (critic(x) - critic(generator(x).detach())).mean().backward()
            quick.step()
            if number % every == 0:
                slow.zero_grad()
                critic(generator(x)).mean().backward()
                slow.step()

    setup = recorded(loop)
    if is_faulty:
        assert setup["not_updated"]["names"] == ["1.weight", "1.bias"]
    else:
        assert was_checked(setup)


def test_an_optimizer_that_has_not_stepped_yet_counts(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        first = torch.optim.SGD(model[4].parameters(), lr=0.01)
        later = torch.optim.SGD(model[:4].parameters(), lr=0.01)
        monitor.watch(model)
        train(monitor, model, first)
        later.step()

    assert was_checked(recorded(loop))


@pytest.mark.slow
def test_a_model_that_is_changed_during_the_training_is_checked_again(recorded, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.steps.evidence.sampled_probes.SHARE", 1e6)
    monkeypatch.setattr("stepscope.steps.evidence.model_state.INTERVAL_S", 0.0)

    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer, 30)
        model[4] = nn.Linear(8, 3)
        train(monitor, model, optimizer, 60)

    setup = recorded(loop)
    assert "not_updated" in setup["changed"]
    assert setup["findings"].keys() == {"opt.not_updating"}


def test_tied_weights_are_one_parameter(recorded) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    def loop(monitor: Any) -> None:
        model = Tied()
        optimizer = torch.optim.SGD(model.first.parameters(), lr=1e-6)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert was_checked(setup)
    assert setup["trainable_tensors"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_added", [False, True])
def test_parameters_that_are_added_to_the_optimizer_later_are_updated(recorded, is_added) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer, 5)
        if is_added:
            optimizer.add_param_group({"params": model[:4].parameters()})
        train(monitor, model, optimizer)

    assert ("opt.not_updating" in recorded(loop)["findings"]) is not is_added


@pytest.mark.parametrize("is_faulty", [False, True])
def test_adapters_beside_frozen_weights_are_checked_alone(recorded, is_faulty) -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, 4).requires_grad_(requires_grad=False)
            self.lora_a, self.lora_b = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)

        def forward(self, x):
            return self.base(x) + self.lora_b(self.lora_a(x))

    def loop(monitor: Any) -> None:
        model = Adapted()
        trained = model.lora_b if is_faulty else model
        optimizer = torch.optim.SGD(
            [parameter for parameter in trained.parameters() if parameter.requires_grad], lr=1e-6
        )
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert setup["trainable_tensors"] == 2
    if is_faulty:
        assert setup["not_updated"] == {"tensors": 1, "parameters": 8, "names": ["lora_a.weight"]}
    else:
        assert was_checked(setup)


@pytest.mark.slow
def test_parameters_that_are_updated_by_hand_are_fine(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for _ in range(STEPS):
            model.zero_grad()
            model(torch.ones(6, 4)).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for parameter in model[:4].parameters():
                    parameter.sub_(0.01 * parameter.grad)

    assert was_checked(recorded(loop))


def test_a_model_that_is_updated_through_copies_is_not_called_checked(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        copies = [parameter.detach().clone().requires_grad_() for parameter in model[:4].parameters()]
        optimizer = torch.optim.SGD([*copies, *model[4].parameters()], lr=0.01)
        monitor.watch(model, optimizer)
        for _ in range(STEPS):
            model.zero_grad()
            model(torch.ones(6, 4)).square().mean().backward()
            for one, parameter in zip(copies, model[:4].parameters(), strict=True):
                one.grad = parameter.grad.clone()
            optimizer.step()
            for one, parameter in zip(copies, model[:4].parameters(), strict=True):
                parameter.data.copy_(one.data)

    setup = recorded(loop)
    assert "copies" in setup["not_updated"]["unknown"]
    assert setup["findings"] == {}
    assert setup["reasons"]["opt.not_updating"].startswith("Could not be checked: the optimizers change")


def test_a_model_of_which_the_optimizer_has_no_parameter_is_not_called_checked(recorded) -> None:
    def loop(monitor: Any) -> None:
        model, flat = nn.Linear(4, 2), nn.Parameter(torch.zeros(10))
        optimizer = torch.optim.SGD([flat], lr=0.01)
        monitor.watch(model, optimizer)
        for _ in range(STEPS):
            model(torch.ones(6, 4)).sum().backward()
            flat.grad = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
            optimizer.step()

    assert "no optimizer" in recorded(loop)["not_updated"]["unknown"]


def test_an_optimizer_of_a_model_that_was_replaced_is_reported(recorded) -> None:
    def loop(monitor: Any) -> None:
        optimizer = torch.optim.SGD(network().parameters(), lr=0.01)
        model = network()
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    finding = recorded(loop)["findings"]["opt.not_updating"]
    assert "100% of the trainable parameters" in finding.headline


def test_a_sharded_model_is_not_called_checked(recorded) -> None:
    class FullyShardedDataParallel(nn.Sequential):
        """Named as the wrapper whose parameters may be others than those of its optimizer."""

    def loop(monitor: Any) -> None:
        model = FullyShardedDataParallel(*network())
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    assert recorded(loop)["not_updated"] == {"unknown": "the parameters are sharded"}


def test_gradients_of_a_training_that_has_ended_do_not_count(recorded) -> None:
    def loop(monitor: Any) -> None:
        backbone, old_head, new_head = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 2)
        old, new = nn.Sequential(backbone, old_head), nn.Sequential(backbone, new_head)
        optimizer = torch.optim.SGD(old.parameters(), lr=1e-6)
        monitor.watch(old)
        train(monitor, old, optimizer, 30)
        del optimizer
        gc.collect()
        optimizer = torch.optim.SGD(new.parameters(), lr=1e-6)
        monitor.watch(new)
        train(monitor, new, optimizer)

    assert was_checked(recorded(loop))


def test_a_layer_that_has_no_shape_yet_disturbs_nothing(recorded) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.LazyLinear(2), nn.LazyLinear(3)

        def forward(self, x):
            return self.used(x)

    def loop(monitor: Any) -> None:
        model = Lazy()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert was_checked(setup)
    assert setup["parameters"] == 10
    assert parameters([nn.LazyLinear(2)])["parameters"] == 0


def test_a_model_that_raises_when_it_is_read_does_not_stop_the_training(folder: Path, caplog) -> None:
    class Broken(nn.Linear):
        steps = 0

        def named_parameters(self, *arguments: Any, **options: Any) -> Any:
            if self.steps > 5:
                raise RuntimeError("not readable")
            return super().named_parameters(*arguments, **options)

    model = Broken(4, 2)
    optimizer = torch.optim.SGD(list(model.parameters()), lr=0.01)
    with stepscope.TrainingMonitor(run="broken", directory=folder, strict=False) as monitor:
        monitor.watch(model, optimizer, gradients=False)
        for _ in range(STEPS):
            model.steps += 1
            model(torch.ones(6, 4)).sum().backward()
            optimizer.step()
    assert len(stepscope.open_store(folder).run("broken").series("step_seconds")) == STEPS


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("is_faulty", [False, True])
def test_an_evaluation_that_does_not_set_the_model_back_is_reported_with_its_step(
    recorded, in_batches, is_faulty
) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for _ in range(3):
            train(monitor, model, optimizer, 25, in_batches=in_batches)
            model.eval()
            with torch.no_grad():
                model(torch.ones(6, 4))
            model.train(not is_faulty)

    setup = recorded(loop)
    if not is_faulty:
        assert setup["mode"] == {"training": True}
        assert setup["findings"] == {}
        return
    finding = setup["findings"]["mode.train_eval"]
    assert (finding.severity, finding.first_step) == ("warning", 25)
    assert setup["mode"]["layers"] == 2


def test_a_mode_that_is_set_without_a_call_of_eval_is_reported(recorded, monkeypatch) -> None:
    # All probes are read at every step: a training of seconds would be read too rarely.
    monkeypatch.setattr("stepscope.steps.evidence.sampled_probes.SHARE", 1e6)

    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer, 30)
        for part in model.modules():
            part.training = False
        train(monitor, model, optimizer, 40)

    finding = recorded(loop)["findings"]["mode.train_eval"]
    assert finding.severity == "warning"
    assert 30 <= finding.first_step <= 32


def test_a_model_that_is_set_back_later_is_no_longer_reported(recorded, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.steps.evidence.sampled_probes.SHARE", 1e6)

    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for is_training in (True, False, True):
            model.train(is_training)
            train(monitor, model, optimizer, 40)

    setup = recorded(loop)
    assert setup["mode"] == {"training": True}
    assert setup["findings"] == {}


def test_a_model_that_is_in_evaluation_mode_from_the_beginning_is_a_notice(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    finding = recorded(loop)["findings"]["mode.train_eval"]
    assert (finding.id, finding.severity) == ("mode.train_eval", "notice")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), "has no layer that depends on the mode"),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)), "has no layer that depends on the mode"),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).requires_grad_(requires_grad=False)),
            "has no layer that depends on the mode",
        ),
    ],
)
def test_evaluation_mode_without_an_effect_is_fine(recorded, build, expected) -> None:
    def loop(monitor: Any) -> None:
        model = build().eval()
        optimizer = torch.optim.SGD(
            [parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.01
        )
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    setup = recorded(loop)
    assert setup["findings"] == {}
    assert expected in setup["reasons"]["mode.train_eval"]


@pytest.mark.slow
def test_dropout_that_is_kept_on_in_evaluation_mode_is_intended(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network().eval()
        model[3].train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        train(monitor, model, optimizer)

    assert "some of its layers were set to training mode" in recorded(loop)["reasons"]["mode.train_eval"]


def test_a_loop_that_evaluates_at_the_end_of_each_batch_is_fine(recorded) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for batch in monitor.batches([torch.ones(6, 4)] * STEPS):
            model.train()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(batch)

    assert recorded(loop)["mode"] == {"training": True}


def test_a_watched_model_in_evaluation_mode_that_is_not_trained_is_fine(recorded) -> None:
    def loop(monitor: Any) -> None:
        teacher, student = network().eval(), network()
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        monitor.watch(teacher)
        monitor.watch(student, optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (student(torch.ones(6, 4)) - teacher(torch.ones(6, 4)).detach()).square().mean().backward()
            optimizer.step()

    setup = recorded(loop)
    assert setup["mode"] == {"training": True}
    assert was_checked(setup)


@pytest.mark.slow
def test_the_training_computes_the_same_numbers_with_a_fault_as_without_stepscope(folder: Path) -> None:
    def losses(monitor: Any) -> list[str]:
        model = network()
        optimizer = torch.optim.SGD(model[4].parameters(), lr=0.01)
        if monitor is not None:
            monitor.watch(model, optimizer)
        values = []
        for number in range(STEPS):
            model.train(number < 15)
            optimizer.zero_grad()
            loss = model(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            values.append(loss.item().hex())
        return values

    expected = losses(None)
    with stepscope.TrainingMonitor(run="same", directory=folder, strict=True) as monitor:
        assert losses(monitor) == expected


def test_after_the_first_steps_a_step_does_not_call_it(folder: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(run="quiet", directory=folder, strict=True) as monitor:
        monitor.watch(model, optimizer, gradients=False)
        train(monitor, model, optimizer, 40)
        assert monitor._watched.step_phases.optimizers._after_steps == []


@pytest.mark.slow
def test_an_unedited_script_gets_the_same_checks(folder: Path, run_script) -> None:
    script = """
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model[2] = nn.Linear(8, 3)
        for step in range(80):
            if step == 30:
                model.eval()
            optimizer.zero_grad()
            model(torch.ones(6, 4)).square().mean().backward()
            optimizer.step()
    """
    environment = attached({**os.environ, "STEPSCOPE_RUN": "unedited", "STEPSCOPE_DIR": str(folder)})
    ended = run_script(script, environment=environment)
    assert ended.returncode == 0, ended.stderr
    run = stepscope.open_store(folder).run("unedited")
    findings = {finding.id: finding for finding in run.diagnose().findings}
    assert findings.keys() >= IDS
    assert findings["mode.train_eval"].first_step == 30
    assert "`2.weight`" in findings["opt.not_updating"].headline


def never_stepping(monitor: Any, *, by_hand: bool = False, steps_after: int = 0) -> None:
    """A loop that computes gradients in 80 batches, and takes no step of its optimizer in them."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor.watch(model, optimizer)
    for batch in monitor.batches([torch.ones(6, 4) + number for number in range(80)]):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        if by_hand:
            for parameter in model.parameters():
                parameter.data -= 0.01 * parameter.grad
    if steps_after:
        train(monitor, model, optimizer, steps_after, in_batches=True)


def test_an_optimizer_that_never_steps_is_named(recorded: Callable[..., dict[str, Any]]) -> None:
    setup = recorded(never_stepping)
    assert setup["never_updated"] == {"batches": 64, "optimizers": ["SGD"]}
    finding = setup["findings"]["opt.not_updating"]
    assert finding.severity == "warning"
    assert finding.headline.startswith("The optimizer (SGD) has not stepped in the first 64 batches")
    assert "optimizer.step()" in finding.remedies[0].code


def test_an_optimizer_is_not_missed_where_the_loop_updates_by_hand_or_steps_later(
    recorded: Callable[..., dict[str, Any]],
) -> None:
    setup = recorded(lambda monitor: never_stepping(monitor, by_hand=True))
    assert "never_updated" not in setup
    assert setup["findings"] == {}


def test_an_optimizer_that_steps_after_many_batches_is_not_named(
    recorded: Callable[..., dict[str, Any]],
) -> None:
    setup = recorded(lambda monitor: never_stepping(monitor, steps_after=30))
    assert setup["never_updated"] is None
    assert "opt.not_updating" not in setup["findings"]
