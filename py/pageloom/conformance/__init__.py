"""The conformance matrix run on one backend: case by case, with what was computed by which tier and how far off."""
