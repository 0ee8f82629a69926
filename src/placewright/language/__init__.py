"""Language models in: a configuration, an index of weights or a GGUF file, as operators of prefill and decode."""

from placewright.language.model import LanguageModel, model_of
from placewright.language.part import Part
from placewright.language.step import Formats, Step, step_graph

__all__ = ["Formats", "LanguageModel", "Part", "Step", "model_of", "step_graph"]
