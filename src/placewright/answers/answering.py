"""All questions that have an answer for a plan, in the order in which people ask them."""

from __future__ import annotations

from dataclasses import dataclass

from placewright.answers.context import context_room
from placewright.answers.cpu_offload import cpu_offload
from placewright.answers.even_split import even_split
from placewright.answers.holdings import holdings
from placewright.answers.one_or_many import one_or_many
from placewright.evaluate import Evaluation
from placewright.problem import Problem
from placewright.report.explain import explain_devices
from placewright.result import Result

__all__ = ["Answer", "answers_of", "sentences_by_question"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, and the sentences that answer it."""

    question: str
    sentences: tuple[str, ...]


def answers_of(problem: Problem, result: Result, evaluation: Evaluation) -> list[Answer]:
    """Answer what people ask; a question that makes no sense for a plan is left out.

    Parameters
    ----------
    problem : Problem
    result : Result
        With a plan.
    evaluation : Evaluation
        Of that plan.
    """
    plan = result.require_plan()
    answered = {
        "What does each device hold?": holdings(problem, plan, evaluation),
        "Why is this device unused?": explain_devices(problem, plan, evaluation, result.alternatives),
        "Why not split evenly?": even_split(problem, plan, evaluation),
        "Does this split help one query, or only many?": one_or_many(problem, plan),
        "Does the KV cache fit, and up to which context?": context_room(problem, plan, evaluation),
        "Is CPU offload worth it, and from which bandwidth on?": cpu_offload(problem, plan, evaluation),
    }
    return [Answer(question, tuple(said)) for question, said in answered.items() if said]


def sentences_by_question(problem: Problem, result: Result, evaluation: Evaluation) -> dict[str, tuple[str, ...]]:
    """Give the answers of :func:`answers_of` as a page takes them: the sentences of each question."""
    return {answer.question: answer.sentences for answer in answers_of(problem, result, evaluation)}
