"""The file of `--json` is whole or as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pageloom.commands.json_file import json_file
from pageloom.errors import InvalidArgument


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for number in (1, 22):
        with json_file(path) as write:
            write({"number": number})
        assert json.loads(path.read_text()) == {"number": number}


def test_work_that_fails_leaves_no_file_or_the_old_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("1")
    for path in (old, new):
        with pytest.raises(KeyError), json_file(path):
            raise KeyError
    assert old.read_text() == "1"
    assert not new.exists()


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot write"), json_file(tmp_path / "absent" / "report.json"):
        pytest.fail("the work began")
