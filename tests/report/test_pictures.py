"""Pictures draw what the recordings, routes and chains say."""

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from random_programs import random_program

import wafer_jax as wj
from wafer_jax.errors import WaferError
from wafer_jax.report.activity import COLOR_BITS, Activity
from wafer_jax.report.palette import COLORS
from wafer_jax.report.timeline import dominant

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def recording():
    program, _ = random_program(3)
    return wj.record(program, values="none")


def test_a_timeline_shows_what_each_pe_does(recording):
    ax = recording.plot_timeline()
    (image,) = ax.images
    pixels = image.get_array()
    codes = np.repeat(recording.pes, recording.span, axis=0).reshape(recording.cycles, -1)
    assert pixels.shape == (6, recording.cycles, 3)
    for pe, cycle in ((0, 0), (3, 20), (5, recording.cycles - 1)):
        expected = to_rgb(COLORS[Activity(codes[cycle, pe] >> COLOR_BITS)])
        assert np.allclose(pixels[pe, cycle], expected)
    assert len(ax.get_legend().get_texts()) == len(np.unique(codes >> COLOR_BITS))
    assert "fabric level" in ax.get_title()


def test_bins_show_what_takes_most_of_them(recording):
    codes = np.repeat(recording.pes, recording.span, axis=0).reshape(recording.cycles, -1)
    edges = np.arange(0, recording.cycles + 1, 7).astype(float)
    found = dominant(recording, edges)
    for b, pe in np.ndindex(found.shape):
        counts = np.bincount(codes[7 * b : 7 * b + 7, pe] >> COLOR_BITS, minlength=11)
        assert counts[found[b, pe]] == counts.max()


def test_queues_are_drawn_as_steps(recording):
    frame = recording.queues(1, 1)
    ax = recording.plot_queues(1, 1)
    assert len(ax.lines) == len(frame.columns) - 1
    assert list(ax.lines[0].get_ydata()[:-1]) == list(frame.iloc[:, 1])


def test_stalls_and_links_are_drawn_on_the_mesh(recording):
    (image,) = recording.plot_stalls().images
    waiting = [c.activity in (1, 2, 3) for c in recording.causes]
    share = recording.totals[waiting].sum(axis=0) / recording.cycles
    assert np.allclose(image.get_array(), 100 * share)
    color = recording.program.colors[0]
    ax = recording.plot_links(color)
    arrows = ax.collections[-1]
    links = recording.links
    here = links[(links["color"] == color) & (links["direction"] != "RAMP")]
    assert sorted(arrows.get_array()) == pytest.approx(sorted(here["words_per_cycle"]))
    with pytest.raises(WaferError, match="no colour 23"):
        recording.plot_links(23)


def test_links_sum_to_those_of_the_result(recording):
    assert np.array_equal(recording.link_words.sum(axis=0), recording.result.link_words)
    assert recording.colors["words"].sum() == recording.link_words.sum()


def test_a_film_is_bounded_and_plays(recording):
    film = recording.animate(cycles_per_frame=recording.cycles // 3)
    assert "<img" in film.to_jshtml()
    with pytest.raises(WaferError, match="larger cycles_per_frame"):
        wj.record(recording.program, values="none", jitter=wj.Jitter(1, 900, 9)).animate(1)


def test_nothing_kept_is_named(recording):
    late = wj.record(recording.program, values="none", window=(100_000, 100_001))
    for draw in (late.plot_timeline, late.animate, lambda: late.plot_queues(0, 0)):
        with pytest.raises(WaferError, match="no cycle was kept"):
            draw()


def tree():
    """Colour 2 from the middle of a row to its ends, multicast at the source."""
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(2, 5)), "tree")
    x = b.tile("x", (3,))
    b.path(2, (0, 2), (0, 0))
    b.path(2, (0, 2), (0, 4))
    b.role("source", at=(0, 2)).thread().send(2, x)
    b.role("sinks", at=(0, [0, 4])).thread().receive(2, x)
    return b.build()


def test_a_route_map_has_an_arrow_per_link_and_shows_multicast():
    program = tree()
    ax = wj.plot_routes(program, 2)
    _, arrows, sources, sinks = ax.collections
    assert len(arrows.get_offsets()) == 4
    multicast = {tuple(c) for c, u in zip(arrows.get_facecolor(), arrows.X, strict=True)
                 if abs(u - 2) < 0.5}  # fmt: skip
    others = {tuple(c) for c, u in zip(arrows.get_facecolor(), arrows.X, strict=True)
              if abs(u - 2) > 0.5}  # fmt: skip
    assert len(multicast) == len(others) == 1
    assert multicast != others
    assert sources.get_offsets().tolist() == [[2, 0]]
    assert sorted(sinks.get_offsets().tolist()) == [[0, 0], [4, 0]]
    state = wj.initial_state(program, values=False)
    assert len(wj.plot_routes(program, 2, state).collections[1].get_offsets()) == 4
    with pytest.raises(WaferError, match="only 2"):
        wj.plot_routes(program, 3)


def circle():
    """Four PEs that all send before they receive, and one that nobody sends to."""
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(3, 4)), "circle")
    x = b.tile("x", (30,))
    ring = [(0, 1), (0, 2), (1, 2), (1, 1)]
    for i, pe in enumerate(ring):
        b.path(i, pe, ring[(i + 1) % 4])
        b.role(f"role {i}", at=pe).thread().send(i, x).receive((i - 1) % 4, x)
    b.path(5, (2, 0), (2, 3))
    b.role("lonely", at=(2, 3)).thread().receive(5, x)
    return b.build()


def test_a_mesh_of_one_row_has_whole_numbers_at_its_axes():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 3)), "row")
    b.path(0, (0, 0), (0, 2))
    ax = wj.plot_routes(b.build(), 0)
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_yticklabels()].count("0") == 1
    assert all(tick == round(tick) for tick in (*ax.get_xticks(), *ax.get_yticks()))


def test_a_deadlock_is_a_picture_and_a_sentence():
    result = wj.run(circle(), values="none")
    sentence = wj.deadlock_sentence(result)
    assert "4 PEs (y, x) wait for each other, (0, 1) -> (0, 2) -> (1, 2) -> (1, 1) -> (0, 1)" in (
        sentence
    )
    assert "5 PEs do not go on" in sentence
    ax = wj.plot_deadlock(result)
    arrows = {(tuple(t.xyann), tuple(t.xy)) for t in ax.texts if getattr(t, "arrow_patch", None)}
    assert arrows == {((1, 0), (2, 0)), ((2, 0), (2, 1)), ((2, 1), (1, 1)), ((1, 1), (1, 0))}
    assert ax.get_title().replace("\n", " ").endswith(sentence)


def test_a_word_that_nobody_sends_is_a_chain_of_one():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 3)), "lonely")
    x = b.tile("x", (3,))
    b.path(1, (0, 0), (0, 2))
    b.role("lonely", at=(0, 2)).thread().receive(1, x)
    result = wj.run(b.build(), values="none")
    assert "waits for a word that PE (y=0, x=0) never sends" in wj.deadlock_sentence(result)
    assert not wj.plot_deadlock(result).texts
    with pytest.raises(WaferError, match="did not end in a deadlock"):
        wj.plot_deadlock(wj.run(tree(), values="none"))


def test_two_runs_side_by_side(recording):
    other = wj.record(recording.program, values="none", jitter=wj.Jitter(5, 40, 9))
    table = wj.compare(recording, other, names=("plain", "late"))
    assert list(table.columns) == ["cause", "plain_cycles", "late_cycles", "difference_cycles"]
    for name, run in (("plain_cycles", recording), ("late_cycles", other)):
        assert table[name][0] == run.cycles
        assert table[name][1:].sum() == pytest.approx(run.cycles)
    ax = wj.plot_compare(recording, other, names=("plain", "late"))
    assert len(ax.patches) == 2 * len(table)
    with pytest.raises(WaferError, match="give names"):
        wj.compare(recording, other)


def test_stalls_in_words(recording):
    text = recording.explain(2)
    frame = recording.stalls
    lost = frame[frame["state"].str.startswith(("waits", "sets up"))]
    lines = text.splitlines()
    assert len(lines) == 4
    for line, share in zip(lines[:2], lost["share"], strict=False):
        assert line.startswith(f"{share:.1%} of PE-cycles ")
    assert frame["share"].sum() == pytest.approx(1)
