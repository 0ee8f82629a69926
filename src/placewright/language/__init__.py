"""Language models in: a configuration, an index of weights or a GGUF file, as operators of prefill and decode."""

from placewright.language.answers import explain_steps
from placewright.language.asked import Asked, Phase, phases_of
from placewright.language.model import LanguageModel, model_of
from placewright.language.part import Part
from placewright.language.posed import PosedModel, pose_model
from placewright.language.reading import ReadModel, is_language_model, read_language_model
from placewright.language.step import Formats, Step, step_graph

__all__ = [
    "Asked",
    "Formats",
    "LanguageModel",
    "Part",
    "Phase",
    "PosedModel",
    "ReadModel",
    "Step",
    "explain_steps",
    "is_language_model",
    "model_of",
    "phases_of",
    "pose_model",
    "read_language_model",
    "step_graph",
]
