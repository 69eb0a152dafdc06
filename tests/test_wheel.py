"""The wheel stands alone: presets come from inside it, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed wheel and nothing else; its dependencies are this venv's."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    build = f"import hatchling.build; hatchling.build.build_wheel({str(wheels)!r})"
    run([sys.executable, "-c", build], cwd=ROOT)
    (wheel,) = wheels.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel)])
    return target


def run(command, cwd=None, **environment):
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_info_in_an_empty_folder(installed, tmp_path):
    # PYTHONPATH comes before the checkout that this venv may have installed for editing.
    command = [str(installed / "bin" / "wafer-jax"), "info", "--json"]
    record = json.loads(run(command, cwd=tmp_path, PYTHONPATH=str(installed)))
    assert Path(record["folder"]).is_relative_to(installed)
    assert {"wse2", "wse3", "toy"} <= {row["preset"] for row in record["presets"]}
    assert {"llama3-8b", "qwen3-30b-a3b"} <= {row["model"] for row in record["models"]}
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_has_the_package_and_its_license_only(installed):
    names = {path.name for path in installed.iterdir()}
    (facts,) = (name for name in names if name.endswith(".dist-info"))
    assert names == {"bin", "wafer_jax", "wafer_jax_command.py", facts}
    assert (installed / facts / "licenses" / "LICENSE").is_file()
