"""`pageloom batch`: the command as a user runs it, on each software driver of this machine."""

from __future__ import annotations

import pytest

from tests.golden_batch import GoldenRun, check_answers, check_refusals, check_summary, run_golden
from tests.native.software_drivers import environment_with

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module", params=[16, pytest.param(48, marks=pytest.mark.slow)])
def max_tokens(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module", params=["swiftshader", "lavapipe", pytest.param("hardware", marks=pytest.mark.gpu)])
def golden(request: pytest.FixtureRequest, max_tokens: int, tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    driver = request.param
    environment = None if driver == "hardware" else environment_with(driver)
    gpu = "hardware" if driver == "hardware" else "software"
    command = ["batch", "--backend", "webgpu", "--gpu", gpu]
    return run_golden(tmp_path_factory.mktemp("golden"), max_tokens, *command, environment=environment)


def test_the_golden_prompts_in_one_batch_give_their_golden_answers(golden: GoldenRun) -> None:
    check_answers(golden)


def test_a_bad_line_has_an_error_row_and_the_others_are_served(golden: GoldenRun) -> None:
    check_refusals(golden)


def test_the_summary_has_the_rate_the_steps_the_pages_and_the_adapter(golden: GoldenRun) -> None:
    check_summary(golden)
