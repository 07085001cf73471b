"""The model files that some tests read; a test that lacks one is skipped with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pageloom.model.gguf import GgufFile, read_gguf
from pageloom.model.source import FileSource
from tests.fetch_gemma3 import gemma3_path as where_gemma3_lies

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    path = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not in models/; `make setup` brings it")
    return path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    path = where_gemma3_lies()
    if not path.exists():
        pytest.skip(f"{path.name} is not in models/; `python tests/fetch_gemma3.py` brings it")
    return path


@pytest.fixture(params=["smollm2", "gemma3"], scope="session")
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def model_path(family: str, request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(f"{family}_path")
    return path


@pytest.fixture(scope="session")
def model_gguf(model_path: Path) -> GgufFile:
    import asyncio  # noqa: PLC0415 - one loop for a session fixture

    return asyncio.run(read_gguf(FileSource(model_path)))


def golden(name: str) -> Any:
    return json.loads((ROOT / "tests" / "golden" / f"{name}.json").read_text())
