"""What is no checkpoint of this program is refused in one line that says why."""

import gc
import json
import os
import shutil

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wafer_jax as wj
from runtime.conftest import assert_same, chain, ones
from wafer_jax.runtime import checkpoint, long_run

# Orbax leaves coroutines of a closed loop behind where reading fails.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def nothing_left_to_later_tests():
    yield
    gc.collect()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One checkpoint, never changed, and its state."""
    folder = tmp_path_factory.mktemp("saved")
    program = chain()
    state = wj.run(program, ones(program), max_cycles=5).state
    checkpoint.save(folder, program, state)
    return folder, state


@pytest.fixture
def copy(saved, tmp_path):
    """The checkpoint as it lies on disk, to be damaged."""
    folder = tmp_path / "copy"
    shutil.copytree(saved[0], folder)
    return checkpoint.latest(folder)


def refusal(path, program=None):
    with pytest.raises(wj.WaferError) as error:
        checkpoint.load(path.parent, program or chain())
    text = str(error.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 600
    return text


def edit(path, **changes):
    text = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(text))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda: chain(words=5), "saved with program (fingerprint) "),
        (lambda: chain(mesh=(1, 4)), r"saved with mesh [1, 3], not [1, 4]"),
        (
            lambda: wj.reduce.chain(wj.hardware("toy", mesh=(1, 3)).replace(hop_cycles=2), words=4),
            "saved with machine (preset hash) ",
        ),
        (lambda: wj.broadcast.program(wj.hardware("toy", mesh=(1, 3)), 4), "saved with program"),
    ],
)
def test_another_program(copy, program, message):
    assert message in refusal(copy, program())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "saved with format version 3, not 2"),
        ({"format": "odd"}, "saved with format 'odd'"),
        ({"wafer_jax": "0.0.1"}, "saved with wafer_jax version '0.0.1'"),
        ({"wafer_jax": "\n" * 9000}, "saved with wafer_jax version"),
        ({"values": "some"}, "damaged: values 'some'"),
        ({"values": "none"}, "array ['memory.sram'"),
        ({"jitter": [1, 2]}, "damaged: jitter [1, 2]"),
        ({"jitter": [1, 2, 1 << 40]}, "damaged: jitter event_cycles"),
        ({"jitter": [1, 2, 3]}, "damaged: array"),
        ({"packet_words": 2}, "damaged: packet_words 2"),
        ({"watchdog_cycles": -1}, "damaged: watchdog_cycles -1"),
        ({"watchdog_cycles": 9}, "damaged: array"),
        ({"carry_all": 1}, "damaged: carry_all 1"),
        ({"carry_all": True}, "damaged: array"),
        ({"leaves": None}, "damaged: array ['now'"),
        ({"leaves": [["now", [1 << 60], "int32"]]}, "damaged: array ['now', [1152921504606846976]"),
        ({"cycle": 6}, "damaged: the state is at cycle"),
    ],
)
def test_another_sidecar(copy, changes, message):
    edit(copy / "sidecar" / "data.json", **changes)
    assert message in refusal(copy)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"version": ' + b"9" * 5000 + b"}", b"1" * 2**21],
    ids=["empty", "list", "binary", "deep", "number", "large"],
)
def test_a_sidecar_that_is_none(copy, text):
    (copy / "sidecar" / "data.json").write_bytes(text)
    assert "data.json" in refusal(copy)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
KEYS = ("format", "version", "wafer_jax", "mesh", "preset_hash", "program", "values", "jitter",
        "cycle", "leaves")  # fmt: skip


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=2))
def test_fuzzed_sidecars(saved, copy, changes):
    whole = (saved[0] / copy.name / "sidecar" / "data.json").read_text()
    file = copy / "sidecar" / "data.json"
    file.write_text(json.dumps(json.loads(whole) | changes))
    if json.loads(file.read_text()) != json.loads(whole):
        refusal(copy)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_fuzzed_files(saved, copy, data):
    """A changed or cut metadata file is refused, or does no harm."""
    names = sorted(p.relative_to(copy) for p in copy.rglob("*") if p.is_file() and p.name != "0")
    name = data.draw(st.sampled_from(names))
    whole = (saved[0] / copy.name / name).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    tail = data.draw(st.sampled_from([b"", whole[at + 1 :], b"9" + whole[at:], b"\0" * 9]))
    (copy / name).write_bytes(whole[:at] + tail)
    loaded = refused = None
    try:
        loaded = checkpoint.load(copy.parent, chain())
    except wj.WaferError as error:
        refused = str(error)
    (copy / name).write_bytes(whole)
    if refused is None:
        assert_same(loaded, saved[1])
    else:
        assert len(refused.splitlines()) == 1


@pytest.mark.parametrize("keep", [0, 3])
def test_a_truncated_array(copy, keep):
    file = copy / "state" / "memory.sram" / "0"
    size = file.stat().st_size
    os.truncate(file, keep)
    assert f"damaged: array 'memory.sram' has {keep} bytes, not {size}" in refusal(copy)


def test_a_missing_array(copy):
    shutil.rmtree(copy / "state" / "pc.0")
    assert "damaged: array 'pc.0' has 0 bytes" in refusal(copy)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1 << 40], "chunks": [1 << 40]},
        {"chunks": [1]},
        {"compressor": {"id": "zstd", "level": 1}},
        {"dtype": "|O"},
        {"filters": [{"id": "pickle"}]},
    ],
)
def test_an_array_stored_in_another_way(copy, changes):
    """What could make a reader allocate or decode more than the program's state needs."""
    edit(copy / "state" / "fault" / ".zarray", **changes)
    assert "array 'fault' is stored in another way" in refusal(copy)


def test_another_kind_of_store(copy):
    edit(copy / "state" / "_METADATA", use_ocdbt=True)
    assert "stored in another way" in refusal(copy)


def test_links_and_large_files(copy):
    (copy / "extra").write_bytes(bytes(2 << 20))
    assert "'extra' is too large" in refusal(copy)
    (copy / "extra").unlink()
    (copy / "extra").symlink_to("/dev/zero")
    assert "'extra' is neither a file nor a folder" in refusal(copy)


def test_pickles_are_never_read(copy, tmp_path):
    """A pickle in any place of a checkpoint stays closed."""
    mark = tmp_path / "executed"
    bomb = f"cos\nsystem\n(S'touch {mark}'\ntR.".encode()
    for file in [p for p in copy.rglob("*") if p.is_file()]:
        whole = file.read_bytes()
        file.write_bytes(bomb.ljust(len(whole), b"\0"))
        try:
            checkpoint.load(copy.parent, chain())
        except wj.WaferError:
            pass
        file.write_bytes(whole)
    assert not mark.exists()


def test_folders_that_hold_none(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(wj.WaferError, match="there is no checkpoint in it"):
            checkpoint.load(folder, chain())


def test_a_damaged_checkpoint_after_a_whole_one_says_how_to_go_back(copy):
    program = chain()
    path = checkpoint.save(copy.parent, program, wj.run(program, ones(program)).state)
    (path / "state" / "now" / "0").write_bytes(b"")
    assert "delete checkpoint_000001 to resume from the one before" in refusal(path)
    shutil.rmtree(path)
    assert int(checkpoint.load(copy.parent, program).now) == 5


def test_arrays_of_any_content_do_no_harm(copy):
    """Numbers are only numbers: a state that cannot be runs to an end of some kind."""
    rng = np.random.default_rng(0)
    for folder in (copy / "state").iterdir():
        if folder.name not in ("now", "stuck") and folder.is_dir():
            file = folder / "0"
            file.write_bytes(rng.bytes(file.stat().st_size))
    state = checkpoint.load(copy.parent, chain())
    jax.block_until_ready(wj.step.run(chain(), state, max_steps=50))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": "none"}, "saved with values='full', not 'none'"),
        ({"jitter": wj.Jitter(3)}, "saved with another jitter than"),
        ({"every_s": 0}, "above 0"),
        ({"every_s": float("nan")}, "above 0"),
    ],
)
def test_resuming_with_other_settings(copy, arguments, message):
    with pytest.raises(wj.WaferError, match=message):
        long_run.resume(chain(), copy.parent, **arguments)


def test_a_folder_in_use_is_not_run_into(copy):
    program = chain()
    with pytest.raises(wj.WaferError, match="holds a checkpoint: resume it"):
        long_run.run(program, ones(program), copy.parent)
