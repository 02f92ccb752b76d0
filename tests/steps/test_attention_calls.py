"""Calls of attention are counted in a few steps, and PyTorch is as before in all others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from stepscope.steps.evidence import attention_calls
from stepscope.steps.evidence.attention_calls import AttentionCalls

ORIGINALS = functional.scaled_dot_product_attention, functional.softmax, torch.softmax


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_calls, "compiled_frames", lambda: 0)


def heads(length: int = 256) -> torch.Tensor:
    return torch.randn(1, 2, length, 8, requires_grad=True)


def train(work: Any, steps: int = 200) -> tuple[list[dict[str, Any]], int]:
    """Runs a loop; returns the events, and in how many steps PyTorch was changed."""
    events: list[dict[str, Any]] = []
    observer = AttentionCalls(torch, lambda _, **fields: events.append(fields), device="cpu")
    changed = 0
    for step in range(steps):
        changed += current() != ORIGINALS
        if step < 60:
            work()
        observer.due -= 1
        if observer.due <= 0:
            observer.after_step(step)
    observer.close()
    assert current() == ORIGINALS
    return events, changed


def current() -> tuple[Any, ...]:
    return functional.scaled_dot_product_attention, functional.softmax, torch.softmax


def by_hand(scores: torch.Tensor) -> torch.Tensor:
    return functional.softmax(scores, dim=-1)


def test_three_steps_are_observed_and_no_other() -> None:
    events, changed = train(lambda: None)
    assert events == [{"steps": 3, "fused": 0, "math": 0, "by_hand": 0, "length": 0}]
    assert changed == 3


def test_a_softmax_of_a_square_matrix_is_attention_by_hand() -> None:
    [event], _ = train(lambda: by_hand(heads() @ heads().transpose(-2, -1)))
    assert event["by_hand"] > 0
    assert event["length"] == 256


@pytest.mark.parametrize(
    "work",
    [
        lambda: by_hand(torch.randn(64, 256, requires_grad=True)),
        lambda: by_hand(torch.randn(2, 200, 3000, requires_grad=True)),
        lambda: by_hand(torch.randn(2, 2, 64, 64, requires_grad=True)),
        lambda: by_hand(torch.randn(2, 2, 256, 256)),
        lambda: nn.Softmax(dim=-1)(torch.randn(4, 10, requires_grad=True)),
    ],
    ids=["classes", "vocabulary", "short", "without gradients", "a module"],
)
def test_other_softmaxes_are_not_attention(work: Any) -> None:
    [event], _ = train(work)
    assert event["by_hand"] == 0


def test_the_kernel_of_each_call_is_read() -> None:
    [fused], _ = train(lambda: functional.scaled_dot_product_attention(heads(), heads(), heads()))
    assert (fused["fused"] > 0, fused["math"]) == (True, 0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        [math], _ = train(
            lambda: functional.scaled_dot_product_attention(heads(), heads(), heads(), is_causal=True)
        )
    assert (math["math"] > 0, math["fused"]) == (True, 0)
    assert (math["dtype"], math["has_mask"]) == ("float32", False)


def test_results_and_errors_are_those_of_the_functions() -> None:
    scores = heads()
    expected = by_hand(scores)
    results: list[torch.Tensor] = []

    def work() -> None:
        results.append(by_hand(scores))
        with pytest.raises(AttributeError):
            functional.softmax("no tensor", dim=-1)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            functional.scaled_dot_product_attention()  # type: ignore[call-arg]

    train(work)
    assert all(torch.equal(result, expected) for result in results)


def test_nothing_is_replaced_once_something_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_calls, "compiled_frames", lambda: 1)
    events, changed = train(lambda: None)
    assert changed == 0
    assert events == [{"unknown": "compiled code chooses its kernels itself"}]
