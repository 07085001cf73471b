"""The browser's WebGPU device, driven from Python in a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pageloom.commands.page_server import PageServer

InBrowser = Callable[..., Any]


def test_the_device_tells_what_it_is_and_shows_lowered_limits(in_browser: InBrowser) -> None:
    found = in_browser("gpu_checks.describe", {"maxStorageBuffersPerShaderStage": 4})
    limits = found.pop("limits")
    assert found == {"home": "browser", "class": "software", "half": False, "subgroups": True}
    assert limits["maxStorageBuffersPerShaderStage"] == 4
    assert limits["maxComputeWorkgroupsPerDimension"] == 65535


def test_opening_a_device_that_is_not_there_says_so(in_browser: InBrowser) -> None:
    assert in_browser("gpu_checks.refusal_to_open", {"prefer": "gpu"})[0] == "NotSupported"
    for limits in ({"maxGlory": 1}, {"maxBufferSize": 2**60}):
        kind, message = in_browser("gpu_checks.refusal_to_open", {"limits": limits})
        assert kind == "InvalidArgument"
        assert next(iter(limits)) in message


def test_bytes_of_any_length_come_back_as_they_were_written(in_browser: InBrowser) -> None:
    assert in_browser("gpu_checks.round_trips", [0, 1, 2, 3, 4, 5, 63, 64, 65, 4095, 65537]) == []


def test_reads_and_submits_keep_their_order(in_browser: InBrowser) -> None:
    assert in_browser("gpu_checks.ordered_reads") == [[1, 2, 3, 4], [2, 4, 6, 8], [4, 8, 12, 16]]


def test_a_grid_may_come_from_a_buffer(in_browser: InBrowser) -> None:
    assert in_browser("gpu_checks.indirect_grids") == [4, 2, 1]


def test_a_recording_is_timed_by_the_gpu_and_runs_once(in_browser: InBrowser) -> None:
    found = in_browser("gpu_checks.timed")
    assert found["values"] == [4, 8]
    assert 0 <= found["seconds"] < 60
    assert (found["of copies"], found["without a clock"]) == (None, None)


def test_what_the_browser_refuses_is_raised_with_its_reason(in_browser: InBrowser) -> None:
    shader, large, binding, outside = in_browser("gpu_checks.refusals")
    assert [shader[0], large[0], binding[0], outside[0]] == ["DeviceError"] * 3 + ["InvalidArgument"]
    assert "shader bad does not compile" in shader[1]
    assert "u32" in shader[1]
    assert "max buffer size" in large[1].lower().replace("maximum", "max")


def test_a_device_that_is_lost_during_a_read_is_lost_to_every_call(in_browser: InBrowser) -> None:
    assert set(in_browser("gpu_checks.lost_in_a_read")) == {"DeviceLost"}


def test_a_range_is_uploaded_whole_from_every_kind_of_source(in_browser: InBrowser, page_server: PageServer) -> None:
    # Longer than two chunks of 4 MiB, from an odd offset, and not a multiple of 4.
    found = in_browser("gpu_checks.uploads", f"{page_server.url}pyodide/pyodide.asm.wasm", 12345, 2 * 4 * 2**20 + 3, 11)
    assert found
    assert all(found.values()), found


def test_a_source_refuses_what_it_does_not_have(in_browser: InBrowser, page_server: PageServer) -> None:
    heard = in_browser("gpu_checks.source_refusals", f"{page_server.url}pyodide/pyodide-lock.json")
    assert [kind for kind, _ in heard] == ["BadModelFile"] * 3
    assert "bytes 1 to 4 (exclusive) lie outside the source of 3 bytes" in heard[0][1]
    assert "HTTP 404" in heard[2][1]


def test_ten_thousand_steps_leave_nothing_behind(in_browser: InBrowser) -> None:
    assert set(in_browser("gpu_checks.growth", 10_000, 200).values()) == {0}
