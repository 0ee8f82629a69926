"""What people ask of a plan, answered in sentences whose numbers the judge or a closed form gives."""

from placewright.answers.answering import Answer, answers_of, sentences_by_question
from placewright.answers.cpu_offload import cpu_offload, fetching_pays_from
from placewright.answers.even_split import even_placement, even_split
from placewright.answers.holdings import holdings
from placewright.answers.one_or_many import one_or_many
from placewright.answers.rendering import answers_to_json, asked_report

__all__ = [
    "Answer",
    "answers_of",
    "answers_to_json",
    "asked_report",
    "cpu_offload",
    "even_placement",
    "even_split",
    "fetching_pays_from",
    "holdings",
    "one_or_many",
    "sentences_by_question",
]
