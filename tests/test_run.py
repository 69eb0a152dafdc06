"""`wj.run`: results, tables, estimates, and what a run refuses."""

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax import execute
from wafer_jax.lowering import lower
from wafer_jax.step import advance

MESH = (2, 5)


def eastward(words=6, mesh=MESH, name="eastward"):
    """Every row multicasts its first PE's tile to PEs 2 and the last."""
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=mesh), name)
    x, y = b.tile("x", (words,)), b.tile("y", (words,))
    last = mesh[1] - 1
    b.route(0, slice(None), 0, wj.RAMP, wj.E)
    b.route(0, slice(None), slice(1, last), wj.W, wj.E)
    b.route(0, slice(None), [2, last], wj.W, wj.RAMP)
    b.role("source", at=(slice(None), 0)).thread().send(0, x)
    b.role("sink", at=(slice(None), [2, last])).thread().receive(0, y)
    return b.build(inputs=["x"], outputs=["y"])


@pytest.fixture(scope="module")
def result():
    x = np.arange(6 * 10, dtype=np.float32).reshape(6, *MESH)
    return wj.run(eastward(), x).raise_on_fault()


def test_values_arrive_and_the_rest_stays_unwritten(result):
    x = np.arange(6 * 10, dtype=np.float32).reshape(6, *MESH)
    for sink in (2, 4):
        np.testing.assert_array_equal(result.values[:, :, sink], x[:, :, 0])
    assert np.isnan(result.values[:, :, 1]).all()
    assert result.level == "fabric"


def test_links_carry_what_the_tree_needs(result):
    expected = np.zeros((5, *MESH), int)
    expected[wj.E, :, :4] = 6
    expected[wj.RAMP, :, [2, 4]] = 6
    np.testing.assert_array_equal(result.link_words, expected)
    assert result.links["words"].sum() == expected.sum()
    assert result.utilisation.links.max() == 6 / result.cycles


def test_tables_and_html(result):
    pes = result.pes.set_index(["y", "x"])
    assert pes.loc[(1, 0), "role"] == "source"
    assert pes.loc[(1, 4), "words_received"] == 6
    assert pes["finish_cycle"].max() == result.cycles
    assert f"{result.cycles:,}" in result._repr_html_()
    assert "eastward" in repr(result)


def test_values_none_has_the_same_timing(result):
    timing = wj.run(eastward(), values="none")
    assert timing.cycles == result.cycles
    np.testing.assert_array_equal(timing.finish_cycles, result.finish_cycles)
    with pytest.raises(wj.WaferError, match="no values"):
        _ = timing.values


def test_plot_links_draws_small_and_large_meshes(result):
    import matplotlib

    matplotlib.use("Agg")
    assert "eastward" in result.plot_links().get_title()
    assert wj.run(eastward(2, (1, 40)), values="none").plot_links().images


def test_a_second_program_of_the_same_shape_does_not_compile_again(result):
    before = advance._cache_size()
    again = eastward(name="again")
    assert lower(again, values=True)[0] == lower(result.program, values=True)[0]
    assert wj.run(again, np.zeros((6, *MESH), np.float32)).compile_s == 0.0
    assert advance._cache_size() == before


def test_a_run_stops_at_max_cycles():
    stopped = wj.run(eastward(), values="none", max_cycles=4)
    assert not bool(stopped.state.stuck)
    assert stopped.cycles == 4
    assert not stopped.faults
    assert "stopped at max_cycles" in repr(stopped)
    with pytest.raises(wj.FaultError, match="stopped at cycle 4, before its end"):
        stopped.raise_on_fault()


def test_progress_reports_the_cycle():
    seen = []
    wj.run(eastward(), values="none", progress=lambda cycle, rate: seen.append((cycle, rate)))
    assert seen[-1][0] == wj.run(eastward(), values="none").snapshot["now"]
    assert seen[-1][1] > 0


def test_estimates_count_loops_and_kernels():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 2)), "loops")
    x = b.tile("x", (3,))
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 0))
    thread = b.role("a", at=(0, 0)).thread()
    with thread.loop(4):
        thread.send(0, x)
        with thread.loop(2):
            thread.receive(1, x)
    estimate = wj.estimate(b.build())
    assert estimate.min_cycles == 4 * (3 + 2 * (3 + 1) + 1)
    assert estimate.host_bytes > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "tile 'x' is not given"),
        ({"tiles": np.zeros((6, 3, 5), np.float32)}, r"shape \(6, 3, 5\), not \(6, 2, 5\)"),
        ({"tiles": {"x": np.zeros((6, *MESH)), "z": np.zeros(1)}}, "no role has a tile 'z'"),
        ({"values": "some"}, "choose 'full' or 'none'"),
        ({"values": "none", "max_cycles": 0}, "max_cycles=0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(wj.WaferError, match=message):
        wj.run(eastward(), **arguments)


def test_what_cannot_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(execute, "_free_host_bytes", lambda: 1000)
    with pytest.raises(wj.WaferError, match="GiB of host memory"):
        wj.run(eastward(), values="none")


def kernel_program(fn, shape=(4,)):
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 1)), "kernels")
    x, y = b.tile("x", (2, 3)), b.tile("y", shape)
    b.role("all", at=(0, 0)).thread().compute(wj.Kernel(name="k", fn=fn), [x], [y], 3)
    return b.build(inputs=["x"], outputs=["y"])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x, r"kernel 'k' gives \[\(2, 3\)\], its tiles are y \(4,\)"),
        (lambda x: (x[0], x[1]), r"kernel 'k' gives \[\(3,\), \(3,\)\]"),
        (lambda x: 1.0, r"kernel 'k' gives \[None\]|kernel 'k' gives \[\(\)\]"),
        (lambda x: x @ x, r"kernel 'k' fails on inputs of \(2, 3\)"),
        (lambda x, y: x, r"kernel 'k' fails on inputs of \(2, 3\)"),
    ],
)
def test_a_kernel_that_does_not_fit_its_tiles_is_refused(fn, message):
    with pytest.raises(wj.WaferError, match=message) as error:
        wj.run(kernel_program(fn), np.zeros((2, 3, 1, 1), np.float32))
    assert "\n" not in str(error.value)


def test_later_faults_of_a_pe_do_not_take_the_place_of_the_first():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 1)), "twice")
    x = b.tile("x", (1,))
    b.route(0, 0, 0, wj.RAMP, wj.S)
    b.role("all", at=(0, 0)).thread().send(0, x)
    faults = wj.run(b.build()).faults
    by_kind = {f.kind: f for f in faults}
    assert "SEND" in by_kind[wj.Fault.UNWRITTEN_READ].what
    assert "goes S" in by_kind[wj.Fault.UNROUTED].what


def test_a_program_without_colours_has_tables_too():
    result = wj.run(wj.ProgramBuilder(wj.hardware("toy", mesh=(2, 2)), "nothing").build())
    assert result.cycles == 0
    assert result.links.empty
    assert result.utilisation.links.max() == 0
    assert len(result.pes) == 4


def test_a_word_for_a_neighbour_that_listens_elsewhere_says_so():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 2)), "misrouted")
    x = b.tile("x", (1,))
    b.route(0, 0, 0, wj.RAMP, wj.E)
    b.route(0, 0, 1, wj.N, wj.RAMP)
    b.role("source", at=(0, 0)).thread().send(0, x)
    program = b.build(inputs=["x"])
    (fault,) = wj.run(program, np.ones((1, 1, 2), np.float32)).faults
    assert fault.what == "1 word of colour 0 left: they go E, where the neighbour listens to its N"


def test_complex_tiles_are_refused():
    with pytest.raises(wj.WaferError, match="tile 'x' is complex"):
        wj.run(eastward(), np.zeros((6, *MESH), complex))
