"""Pageloom: many prompts at once over one local language model, on WebGPU."""

__version__ = "0.1.0"
