"""Exit codes, and what a failure looks like."""

import subprocess
import sys

import pytest

import wafer_jax
from wafer_jax.cli import info
from wafer_jax.cli.options import parse_ids, parse_mesh
from wafer_jax.errors import WaferError


def test_version(wafer):
    done = wafer("--version")
    assert (done.code, done.out) == (0, f"wafer-jax {wafer_jax.__version__}\n")


def test_without_a_command_the_help_is_shown(wafer):
    done = wafer()
    assert done.code == 2
    assert "Usage: wafer-jax" in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["--nosuch"], "No such option: --nosuch"),
        (["info", "a", "b"], "unexpected extra argument"),
        (["info", "--jsn"], "No such option: --jsn"),
    ],
)
def test_usage_errors_are_one_line(wafer, arguments, message):
    assert message in wafer(*arguments).error


def failing(error):
    def fail(*_):
        raise error

    return fail


def test_a_defect_is_said_to_be_one(wafer, monkeypatch):
    monkeypatch.setattr(info, "_list", failing(KeyError("lost\nkey")))
    done = wafer("info")
    assert done.code == 70
    assert done.err.count("\n") == 1
    assert "KeyError" in done.err
    assert "--debug" in done.err
    done = wafer("--debug", "info")
    assert done.code == 70
    assert "Traceback" in done.err


def test_an_interrupt_is_one_line(wafer, monkeypatch):
    monkeypatch.setattr(info, "_list", failing(KeyboardInterrupt()))
    done = wafer("info")
    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


def test_lines_of_an_error_are_joined(wafer, monkeypatch):
    monkeypatch.setattr(info, "_list", failing(WaferError("one\n  two")))
    assert wafer("info").error == "one two"


@pytest.mark.parametrize("text", ["24", "0x3", "axb", "-1x2", "2x", "x", "2x3x4", "٣x٣", "9" * 50])
def test_meshes_that_are_none(text):
    with pytest.raises(WaferError, match="expected rows x columns"):
        parse_mesh(text)


def test_meshes_and_ids():
    assert parse_mesh("24x32") == (24, 32)
    assert parse_mesh(" 2X3 ") == (2, 3)
    assert parse_ids("1, 2,3") == [1, 2, 3]
    for text in ("", "1,", "a", "-1", "1 2", "1.5", "9" * 20):
        with pytest.raises(WaferError, match="expected token ids"):
            parse_ids(text)


def test_the_installed_command():
    """As the shell sees it: the exit status and the two streams."""
    command = "import sys; from wafer_jax.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "info", "nosuch"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: 'nosuch' is ")


def test_an_interrupt_of_the_imports_is_one_line():
    code = """
import signal, sys, wafer_jax_command
class Interrupt:
    def find_spec(self, name, *_):
        if name == "jaxlib._jax":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.exit(wafer_jax_command.main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_light_commands_import_no_model():
    """The version, the help and the presets come at once: neither flax nor torch is loaded."""
    code = (
        "import sys; from wafer_jax.cli import main; "
        "assert not any(main(line) for line in (['--version'], ['--help'], ['info', 'wse2'])); "
        "heavy = {'flax', 'torch', 'transformers', 'matplotlib', 'tokenizers', 'huggingface_hub'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"
