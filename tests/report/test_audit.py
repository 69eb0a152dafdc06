import sys
from pathlib import Path

import pytest

import wafer_jax as wj
from wafer_jax.report.audit_tables import gemm_table, gemv_table, ktree_table

sys.path.append(str(Path(__file__).parent.parent / "collectives"))
from lines_harness import toy

SIZES = [4, 8, 16]


def growths(found) -> dict[str, str]:
    return {name: fit.name for name, fit in found.growth.items()}


def test_meshgemm():
    found = wj.audit("gemm", SIZES)
    assert [row.mesh for row in found.rows] == [(4, 4), (8, 8), (16, 16)]
    assert found.parameters == {"m": 128, "k": 128, "n": 128}
    assert found.values("sram_bytes") == [5 * 4 * (128 // n) ** 2 for n in SIZES]
    assert found.values("operand_percent") == [500 / n**2 for n in SIZES]
    # Alignment takes N / 2 rounds of at most two hops on top of N - 1 steps.
    assert found.values("chain_stages") == [3, 7, 15]
    assert [row.aligned.chain_stages - row.measure.chain_stages for row in found.rows] == [4, 8, 16]
    assert found.values("align_hops") == [6, 14, 30]
    expected = {"trip_hops": "O(1)", "routes": "O(1)", "paths": "O(1)", "sram_bytes": "O(1/N^2)",
                "working_pes": "O(N^2)", "chain_hops": "O(N)", "align_hops": "O(N)"}  # fmt: skip
    assert expected.items() <= growths(found).items()


def test_an_alignment_that_is_chosen_is_not_measured_apart():
    found = wj.audit("gemm", [4], align="chip", m=8, k=8, n=8)
    assert found.rows[0].aligned is None
    assert found.rows[0].measure.routes == 12
    assert found.growth == {}


def test_lines_along_either_axis():
    across, down = wj.audit("allreduce.ktree", SIZES), wj.audit("allreduce.ktree", SIZES, axis="y")
    assert [row.mesh for row in down.rows] == [(n, 1) for n in SIZES]
    assert [row.measure for row in across.rows] == [row.measure for row in down.rows]
    square = wj.audit("allreduce.ktree", SIZES, mesh="square")
    assert [row.mesh for row in square.rows] == [(n, n) for n in SIZES]
    assert square.values("chain_stages") == across.values("chain_stages")


def test_groups_follow_the_size():
    found = wj.audit("reduce.two_phase", [4, 16, 64])
    assert found.values("chain_stages") == [2, 6, 14]  # depth 2 sqrt(P) - 2 of Luczynski et al.


def test_budgets_are_lifted_and_marked():
    hw = toy((4, 4), colors=8, input_queue_depths=(2,) * 3, sram_bytes=4096)
    with pytest.raises(wj.WaferError, match="9 colours, toy has 8"):
        wj.allreduce.ktree(hw.replace(mesh=(1, 32)), words=4)
    found = wj.audit("allreduce.ktree", [8, 16, 32, 64], hw=hw, words=2000)
    assert found.breaks == {
        "colors": (32, 64),
        "input_queues": (16, 32, 64),
        "sram_bytes": (8, 16, 32, 64),
    }
    assert found.rows[2].over(hw)["colors"] == (9, 8)
    assert "Over budget at N = 32, 64: up to 9 colours, toy has 8" in str(found)
    assert "Within the budgets of wse2." in str(wj.audit("allreduce.ktree", [8, 16]))


def test_colours_beyond_what_a_run_holds():
    """Built for the audit alone: a run refuses them in one line."""

    def one_colour_per_pe(hw):
        builder = wj.ProgramBuilder(hw, "all to all")
        x = builder.tile("x", (1,))
        last = hw.mesh[1] - 1
        for pe in range(last):
            builder.path(pe, (0, pe), (0, last))
            builder.role(f"from {pe}", at=(0, pe)).thread().send(pe, x)
        sink = builder.role("sink", at=(0, last)).thread()
        for pe in range(last):
            sink.receive(pe, x)
        return builder.build()

    found = wj.audit(one_colour_per_pe, [8, 16, 32, 64], mesh="line")
    assert found.name == "one_colour_per_pe"
    assert found.values("colors") == found.values("paths") == [7, 15, 31, 63]
    assert growths(found)["paths"] == growths(found)["input_queues"] == "O(N)"
    assert found.breaks == {"colors": (32, 64), "input_queues": (16, 32, 64)}
    free = wj.hardware("wse2", mesh=(1, 64)).replace(colors=64, input_queue_depths=(2,) * 64)
    with pytest.raises(wj.WaferError, match="63 colours and 0 semaphores; together at most 29"):
        wj.run(one_colour_per_pe(free), values="none")


def test_one_program():
    program = wj.allreduce.ktree(toy((2, 16)), words=4)
    found = wj.audit(program)
    assert (found.name, found.growth, found.hw) == (program.name, {}, program.hw)
    assert found.rows[0].measure.chain_stages == 5
    text = str(found)
    assert "2x16" in text
    assert "growth" not in text


def test_printed_and_as_a_frame():
    found = wj.audit("broadcast", SIZES)
    lines = str(found).splitlines()
    assert lines[0] == "PLMR audit of broadcast (words=16)"
    assert max(map(len, lines)) <= 120
    (stages,) = [line.split() for line in lines if "software stages" in line]
    assert stages[-5:] == ["1", "1", "1", "O(1)", "0.00"]
    assert found.frame["N"].tolist() == SIZES
    assert found.frame["trip_hops"].tolist() == [3, 7, 15]
    assert "align_hops" not in found.frame


def test_a_notebook_prints_the_same(monkeypatch):
    found = wj.audit("reduce.chain", SIZES)
    printed = str(found)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(found) == printed
    assert found._repr_html_() == f"<pre>{printed}</pre>"
    assert "PEs that compute" in printed


def test_progress_says_where_it_is():
    said = []
    wj.audit("gemm", [4, 8], progress=said.append)
    assert said[0] == "gemm, N = 4"
    assert "gemm, N = 8" in said


def bad_builder(hw):
    return 3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["nosuch"], {}, "unknown algorithm 'nosuch'; known are "),
        ([7], {}, "7 is no algorithm's name, no program, and no function"),
        (["gemm", [4, 4]], {}, "each larger than the one before"),
        (["gemm", []], {}, "each larger than the one before"),
        (["gemm", [1, 4]], {}, "give sizes from 2 on"),
        (["gemm", "4,8"], {}, "give whole numbers"),
        (["gemm", [4, 8.0]], {}, "give whole numbers"),
        (["gemm", [4, 129]], {}, "16,641 PEs, over the limit of 16,384"),
        (["gemm", [4, 8]], {"words": 3}, "gemm: unknown parameter 'words'"),
        (["gemm", [4, 8]], {"m": "x"}, "m = 'x' is not a whole number"),
        (["gemm", [4, 8]], {"dtype": "int8"}, "gemm: dtype 'int8' is none of float32"),
        (["broadcast", [4, 8]], {"mesh": "cube"}, "mesh 'cube': choose"),
        (["broadcast", [4, 8]], {"root": 5}, "audit of broadcast at N = 4: root 5 is not on a"),
        ([bad_builder, [4]], {}, "3 is no program for the machine"),
    ],
)
def test_mistakes_are_named(arguments, options, message):
    with pytest.raises(wj.WaferError, match=message) as caught:
        wj.audit(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_a_program_takes_no_sizes():
    with pytest.raises(wj.WaferError, match="give no sizes or parameters"):
        wj.audit(wj.broadcast.flood(toy((1, 4)), words=1), [4])


def test_the_gemm_table():
    """All of the paper's claims but one: no core relays here, colours run out instead."""
    found = gemm_table(wj.hardware(), SIZES)
    differ = [(line.method, line.figure) for line in found.lines if not line.agrees]
    assert differ == [("allgather", "stages per step"), ("SUMMA", "stages per step")]
    last = {(line.method, line.letter, line.figure): line.values[-1] for line in found.lines}
    hops = {m: v for (m, _, figure), v in last.items() if figure == "hops per step"}
    assert hops == {"allgather": 15, "SUMMA": 15, "Cannon": 15, "MeshGEMM": 2}
    colors = {m: v for (m, letter, _), v in last.items() if letter == "R"}
    assert colors == {"allgather": 32, "SUMMA": 32, "Cannon": 6, "MeshGEMM": 6}
    assert str(found).startswith("Distributed GEMM")


def test_the_gemv_table():
    found = gemv_table(wj.hardware(), [4, 8, 16, 32, 64, 128])
    assert all(line.agrees for line in found.lines)
    hops = {line.method: line.values[-1] for line in found.lines if line.figure == "hops in all"}
    assert hops == {"pipeline": 254, "ring": 506, "K-tree, K=2": 128}


def test_the_ktree_over_k():
    found = ktree_table(wj.hardware(), 256)
    paths, stages, formula = (line.values for line in found.lines)
    assert paths == (2, 4, 6, 8)
    assert found.lines[0].agrees
    assert stages == (128, 16, 9, 8)
    assert formula == (128, 16, 9.5, 8)
    assert found.heads == ("K=1", "K=2", "K=3", "K=4")
