"""The command line: its exit codes, its words for what is missing, and the files it reads and writes."""

import io
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from pageloom.cli import build_parser, main
from pageloom.commands.batch_files import RowWriter, read_jobs, row_writer
from pageloom.commands.browser import browser_flags, find_browser
from pageloom.commands.info import adapter_notes
from pageloom.commands.page_files import find_page
from pageloom.commands.summary import print_summary
from pageloom.commands.terminal import ProgressLine
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.jobs import Job, RefusedJob, error_row


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def batch_options(model: Path, prompts: Path, *more: str) -> Namespace:
    return build_parser().parse_args(["tab", "--model", str(model), "--prompts", str(prompts), *more])


def test_the_module_is_the_command(tmp_path: Path):
    ran = subprocess.run([sys.executable, "-m", "pageloom", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("pageloom ")


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["tab"], ["tab", "--model", "m", "--prompts", "p", "--gpu", "big"]]
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: pageloom" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tab", "--model", "no.gguf", "--prompts", "p"], 2, "no model file at 'no.gguf'"),
        (["tab", "--model", "{model}", "--prompts", "no.jsonl"], 2, "cannot read the prompts of 'no.jsonl'"),
        (["tab", "--model", "{model}", "--prompts", "{empty}"], 2, "holds no prompt"),
        (["tab", "--model", "{model}", "--prompts", "{bad}", "--strict"], 2, "line 1: the line is not JSON"),
        (["tab", "--model", "{model}", "--prompts", "{good}", "--temperature", "9"], 2, "temperature"),
        (["tab", "--model", "{model}", "--prompts", "{good}", "--browser", "nothing"], 3, "nothing is not a program"),
        (["tab", "--model", "{model}", "--prompts", "{good}", "--page", "{folder}"], 2, "no built page"),
        (
            ["tab", "--model", "{model}", "--prompts", "{good}", "--out", "{good}"],
            2,
            "--out and --prompts are",
        ),
        (
            ["batch", "--model", "{model}", "--prompts", "{good}", "--out", "{model}"],
            2,
            "--out and --model are",
        ),
        (["demo", "--model", "no.gguf"], 2, "make setup"),
    ],
)
def test_an_expected_failure_is_one_line_and_its_exit_code(
    model: Path, arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
):
    files = {"empty": "\n", "bad": "{", "good": '{"prompt": "a"}'}
    for name, text in files.items():
        (model.parent / name).write_text(text)
    names = {"model": model, "folder": model.parent, **{name: model.parent / name for name in files}}
    assert main([argument.format(**names) for argument in arguments]) == code
    said = capsys.readouterr().err
    assert said.startswith("pageloom: ")
    assert says in said
    assert said.count("\n") == 1


def test_options_fill_in_what_a_line_does_not_say(model: Path):
    prompts = model.with_name("prompts.jsonl")
    prompts.write_text(
        '{"prompt": "a"}\n{"prompt": "b", "max_tokens": 3, "stop": "END"}\n{"prompt": "c", "colour": 1}\n'
    )
    options = batch_options(model, prompts, "--max-tokens", "9", "--top-k", "4", "--stop", "x", "--stop", "y")
    first, second, refused = read_jobs(options)
    assert isinstance(first, Job)
    assert isinstance(second, Job)
    assert (first.sampling.max_tokens, first.sampling.top_k, first.sampling.stop) == (9, 4, ("x", "y"))
    assert (second.sampling.max_tokens, second.sampling.top_k, second.sampling.stop) == (3, 4, ("END",))
    assert isinstance(refused, RefusedJob)
    assert (refused.index, refused.error.param) == (2, "colour")


def test_rows_are_written_in_the_order_of_the_prompts_as_soon_as_they_can_be():
    file = io.StringIO()
    writer = RowWriter(file)
    writer.put({"index": 1, "text": "b"})
    assert file.getvalue() == ""
    writer.put({"index": 0, "error": {}})
    writer.put({"index": 1, "text": "a second time"})
    writer.put({"index": 2, "text": "ü"})
    assert file.getvalue() == '{"index": 0, "error": {}}\n{"index": 1, "text": "b"}\n{"index": 2, "text": "ü"}\n'
    assert writer.failed == 1


def test_a_file_of_nothing_but_refused_lines_gives_their_errors_as_rows(tmp_path: Path, model: Path):
    for name in ("pageloom.js", "chromium"):
        (tmp_path / name).touch(mode=0o755)
    prompts, out = model.with_name("prompts.jsonl"), model.with_name("out.jsonl")
    prompts.write_text('nonsense\n\n{"prompt": 5}\n')
    arguments = ["tab", "--model", str(model), "--prompts", str(prompts), "--out", str(out), "--page", str(tmp_path)]
    assert main([*arguments, "--browser", str(tmp_path / "chromium")]) == 1
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["index"], row["error"]["param"]) for row in rows] == [(0, None), (1, "prompt")]


def test_a_refused_line_with_half_a_surrogate_pair_is_a_row_that_any_reader_of_json_takes(tmp_path: Path, model: Path):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "rows.jsonl"
    prompts.write_text(r'{"prompt": "é", "\ud83d": 1}')
    (job,) = read_jobs(batch_options(model, prompts))
    assert isinstance(job, RefusedJob)
    with row_writer(batch_options(model, prompts, "--out", str(out))) as writer:
        writer.put(error_row(0, job.error))
    assert json.loads(out.read_bytes())["error"]["param"] == "\ud83d"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_an_output_that_is_full_is_said_in_words(tmp_path: Path, model: Path):
    options = batch_options(model, tmp_path, "--out", "/dev/full")
    with pytest.raises(InvalidArgument, match="No space left"), row_writer(options) as writer:
        writer.put({"index": 0})


def test_an_output_that_nobody_reads_any_more_is_said_in_words():
    reader, writing = os.pipe()
    os.close(reader)
    with os.fdopen(writing, "w") as file, pytest.raises(InvalidArgument, match="Broken pipe"):
        RowWriter(file).put({"index": 0})


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(tmp_path: Path, model: Path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a"}\n{"prompt": "b"}\n', encoding="utf-8-sig")
    assert [job.prompt for job in read_jobs(batch_options(model, prompts))] == ["a", "b"]


def test_an_output_that_cannot_be_written_is_said_in_words(model: Path):
    options = batch_options(model, model, "--out", str(model.parent / "no" / "such" / "folder.jsonl"))
    with pytest.raises(InvalidArgument, match="No such file"), row_writer(options):
        pass


def test_the_browser_named_comes_before_the_one_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("chromium", "other"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PAGELOOM_BROWSER", raising=False)
    assert find_browser() == str(tmp_path / "chromium")
    monkeypatch.setenv("PAGELOOM_BROWSER", str(tmp_path / "other"))
    assert find_browser() == str(tmp_path / "other")
    assert find_browser(str(tmp_path / "chromium")) == str(tmp_path / "chromium")


def test_playwrights_newest_browser_is_taken_where_none_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for build in ("1100", "1200"):
        folder = tmp_path / f"chromium-{build}" / "chrome-linux"
        folder.mkdir(parents=True)
        (folder / "chrome").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("PAGELOOM_BROWSER", raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert "chromium-1200" in find_browser()
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "nothing"))
    with pytest.raises(NotSupported, match="make setup"):
        find_browser()


def test_the_software_adapter_is_asked_for_by_name_and_only_then():
    assert "--use-webgpu-adapter=swiftshader" in browser_flags("software")
    assert "--use-webgpu-adapter=swiftshader" not in browser_flags("hardware")


def test_a_page_folder_without_the_api_is_refused(tmp_path: Path):
    with pytest.raises(InvalidArgument, match=r"pageloom\.js"):
        find_page(tmp_path)
    (tmp_path / "pageloom.js").touch()
    assert find_page(tmp_path) == tmp_path


def test_an_adapter_that_could_be_better_is_told_why():
    assert adapter_notes(software=False, features={"shader-f16", "subgroups"}) == ()
    assert [note.split(":")[0] for note in adapter_notes(software=True, features=())] == [
        "a software adapter",
        "no shader-f16",
        "no subgroups",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_redraws_one_line_on_a_terminal_and_not_more_than_ten_times_a_second():
    stream = Terminal()
    seconds = iter([0.0, 0.05, 0.2, 0.25])
    progress = ProgressLine(stream, clock=lambda: next(seconds))
    for done in (0, 1, 2):
        progress.show("Running", done, 4, f"{done} of 4")
    progress.show("Running", 4, 4, "4 of 4")
    drawn = stream.getvalue().split("\r\x1b[K")[1:]
    assert [line.rsplit("] ", 1)[1] for line in drawn] == ["0 of 4", "2 of 4", "4 of 4"]
    assert "[############............]" in drawn[1]


def test_progress_elsewhere_is_one_line_a_stage():
    stream = io.StringIO()
    progress = ProgressLine(stream)
    for done in range(5):
        progress.show_stage("weights", done, 5)
    progress.show_stage("compile", 0, 3)
    progress.clear()
    assert stream.getvalue() == "Weights to the device\nCompiling programs\n"


def test_the_summary_has_the_rate_the_pages_and_what_was_shared():
    stream = io.StringIO()
    usage = {"prompt_tokens": 110, "completion_tokens": 30, "cached_tokens": 96}
    rows = [{"index": 0, "usage": usage}, {"index": 1, "usage": usage}, {"index": 2, "error": {}}]
    stats = {"steps": 31, "peak_blocks": 12, "num_blocks": 64, "peak_shared_blocks": 6, "preemptions": 0}
    print_summary(stream, rows, 4.0, stats, "SwiftShader")
    assert stream.getvalue() == (
        "2 of 3 rows in 4.0 s: 60 tokens, 15.0 tokens/s\n"
        "31 steps, 220 prompt tokens of which 192 came from the prefix cache\n"
        "12 of 64 pages at the peak, 6 shared; 0 preemptions\n"
        "adapter: SwiftShader\n"
    )
