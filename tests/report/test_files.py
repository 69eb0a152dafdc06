import os
import stat

import pytest

from wafer_jax.errors import WaferError
from wafer_jax.report.files import atomic, check_output, make_folder


def test_the_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with atomic(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400


def test_a_failure_leaves_nothing_and_keeps_what_was(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")

    def fail():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_the_users_business(tmp_path):
    def fail():
        with atomic(tmp_path / "a.txt"):
            raise OSError(28, "No space left on device")

    with pytest.raises(WaferError, match=r"cannot write .*a\.txt: No space left"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written(tmp_path):
    with pytest.raises(WaferError, match=r"no folder .*missing; create it first"):
        check_output(tmp_path / "missing" / "a.png")
    with pytest.raises(WaferError, match="it is a folder"):
        check_output(tmp_path)
    for long in (tmp_path / ("a" * 300), tmp_path / ("a" * 300) / "b"):
        with pytest.raises(WaferError, match="File name too long"):
            check_output(long)


def test_a_folder_that_cannot_be_made(tmp_path):
    make_folder(tmp_path / "new")
    make_folder(tmp_path / "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
    for refused in (tmp_path / ("a" * 300), tmp_path / "no" / "such", "/proc/new"):
        with pytest.raises(WaferError, match="cannot write to"):
            make_folder(refused)


def test_what_must_not_be_replaced(tmp_path):
    pipe, program, link = tmp_path / "pipe", tmp_path / "g.npz", tmp_path / "link.npz"
    os.mkfifo(pipe)
    program.write_bytes(b"program")
    link.symlink_to(program)
    for special in (pipe, "/dev/null"):
        with pytest.raises(WaferError, match="it is a device or a pipe"):
            check_output(special)
    for same in (program, link, tmp_path / "." / "absent" / ".." / "g.npz"):
        with pytest.raises(WaferError, match=r"it is the input|no folder"):
            check_output(same, program)
    assert check_output(program) == program
