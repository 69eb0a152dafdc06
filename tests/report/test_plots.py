import sys

import pandas as pd
import pytest

from wafer_jax.errors import WaferError
from wafer_jax.report.plots import check_plot, plot_operators


def breakdown(count):
    return pd.DataFrame(
        {
            "operator": [f"operator {i}" for i in range(count)],
            "compute_cycles": range(100, 100 + count),
            "communication_cycles": 50,
            "idle_cycles": 7,
        }
    )


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_plot_is_written_whole(tmp_path, suffix):
    path = tmp_path / f"plot.{suffix}"
    plot_operators({"prefill": breakdown(5), "decode": breakdown(3)}, path, "title")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_plot_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def half(figure, path, **options):
        path.write_bytes(b"\x89PNG")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(WaferError, match="No space left"):
        plot_operators({"decode": breakdown(2)}, tmp_path / "plot.png", "title")
    assert list(tmp_path.iterdir()) == []


def test_plots_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(WaferError, match=r"ends in \.png"):
        check_plot(tmp_path / "plot.xyz")
    with pytest.raises(WaferError, match=r"ends in \.png"):
        check_plot(tmp_path / "plot")
    with pytest.raises(WaferError, match="no folder"):
        check_plot(tmp_path / "missing" / "plot.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(WaferError, match="pip install 'wafer-jax"):
        check_plot(tmp_path / "plot.png")
