"""An assistant that follows the answers finds the planted fault of recorded trainings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from zoo.catalogue import CASES

from tests.mcp.asking import client_of, content_of, recorded_fault, text_of

MAX_CALLS = 3


def answers_by_following(folder: Path) -> list[str]:
    """The text of the first answers: `list_runs`, then whatever each answer names as the next call."""

    async def ask() -> list[str]:
        texts, tool, arguments = [], "list_runs", {}
        async with client_of(folder) as client:
            for _ in range(MAX_CALLS):
                result = await client.call_tool(tool, arguments)
                texts.append(text_of(result))
                call = content_of(result)["next"]
                tool, arguments = call["tool"], call["arguments"]
        return texts

    return asyncio.run(ask())


@pytest.mark.parametrize("name", ["logarithm_of_zero", "optimizer_before_new_head", "slow_dataset"])
def test_a_planted_fault_is_found_with_its_evidence_and_advice_in_three_calls(
    name: str, folder: Path
) -> None:
    recorded_fault(name, folder)
    case = CASES[name]
    texts = answers_by_following(folder)
    accepted = [finding for findings in case.expects for finding in findings]
    explanation = next(text for text in texts if any(f'"finding":{{"id":"{id_}"' in text for id_ in accepted))
    assert '"evidence":[' in explanation
    for advice in case.advice:
        assert any(word.casefold() in text.casefold() for word in advice.split("|") for text in texts)
    assert all(len(text.encode()) <= 2_000 for text in texts)


def test_a_healthy_run_is_not_blamed_for_anything(folder: Path) -> None:
    recorded_fault("healthy_mlp", folder)
    _, explanation, _ = answers_by_following(folder)
    assert '"severity":"critical"' not in explanation
    assert '"severity":"warning"' not in explanation
