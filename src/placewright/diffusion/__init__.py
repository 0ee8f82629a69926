"""Diffusion pipelines in: the configurations of text encoders, denoiser and autoencoder, as operators of a picture."""

from placewright.diffusion.answers import explain_pictures
from placewright.diffusion.asked import PictureAsked, phases_of
from placewright.diffusion.pipeline import Pipeline, PipelineModel, is_pipeline, read_pipeline
from placewright.diffusion.posed import PosedPipeline, pose_pipeline

__all__ = [
    "PictureAsked",
    "Pipeline",
    "PipelineModel",
    "PosedPipeline",
    "explain_pictures",
    "is_pipeline",
    "phases_of",
    "pose_pipeline",
    "read_pipeline",
]
