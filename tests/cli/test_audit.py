import pytest

import wafer_jax as wj


def test_an_algorithm(wafer):
    record = wafer("audit", "gemm", "--sizes", "4,8,16", "--json").json
    assert (record["command"], record["name"], record["preset"]) == ("audit", "gemm", "wse2")
    assert [row["size"] for row in record["rows"]] == [4, 8, 16]
    assert record["growth"]["sram_bytes"]["name"] == "O(1/N^2)"
    assert record["rows"][0]["aligned"]["routes"] == 12
    shown = wafer("audit", "gemm", "--sizes", "4,8,16").out
    assert "farthest trip of a word, hops" in shown
    assert "O(1/N^2)" in shown


def test_parameters_mesh_and_budgets(wafer):
    given = ("--set", "words=3000", "--set", "k=3", "--set", "broadcast=false")
    record = wafer("audit", "allreduce.ktree", "--sizes", "8,64", *given, "--json").json
    assert record["parameters"] == {"words": 3000, "k": 3, "broadcast": False}
    toy = ("--preset", "toy", "--mesh", "square")
    record = wafer("audit", "allreduce.ktree", "--sizes", "8,64", *given, *toy, "--json").json
    assert record["rows"][1]["mesh"] == [64, 64]
    assert record["breaks"] == {"sram_bytes": [8, 64]}
    assert record["rows"][0]["over"] == {"sram_bytes": [12000, 3584]}
    shown = wafer("audit", "allreduce.ktree", "--sizes", "8,64", *given, *toy).out
    assert "Over budget at N = 8, 64: up to 12,000 bytes of SRAM, toy has 3,584" in shown
    groups = wafer("audit", "allreduce.ktree", "--sizes", "9,27", "--set", "groups=3,", "--json")
    assert groups.json["parameters"]["groups"] == [3]


def test_a_program_file(wafer, tmp_path):
    path = tmp_path / "ktree.npz"
    program = wj.allreduce.ktree(wj.hardware("toy", mesh=(1, 16)), words=4)
    wj.save_program(program, path)
    record = wafer("audit", path, "--json").json
    assert (record["preset"], record["growth"]) == ("toy", {})
    (row,) = record["rows"]
    assert (row["size"], row["mesh"], row["chain_stages"]) == (None, [1, 16], 5)
    assert "1x16" in wafer("audit", path).out
    assert "takes no --sizes" in wafer("audit", path, "--sizes", "4").error


def test_the_tables_of_the_paper(wafer):
    shown = wafer("audit", "gemv-table", "--sizes", "4,8,16,32,64").out
    assert "Allreduce of a GEMV" in shown
    assert "K-tree over K, N = 64" in shown
    record = wafer("audit", "gemm-table", "--sizes", "4,8,16", "--json").json
    (table,) = record["tables"]
    mesh = [line for line in table["lines"] if line["method"] == "MeshGEMM"]
    assert [line["agrees"] for line in mesh] == [True] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "'nosuch' is no algorithm (all"),
        (["gemm", "--sizes", "4,x"], "--sizes '4,x': expected numbers with commas"),
        (["gemm", "--sizes", "4,500"], "over the limit of 16,384"),
        (["gemm", "--set", "m"], "--set 'm': expected NAME=VALUE"),
        (["gemm", "--set", "m=8", "--set", "m=9"], "--set m: given twice"),
        (["gemm", "--set", "m=x"], "m = 'x' is not a whole number"),
        (["gemm", "--set", "sizes=3"], "--set sizes: is no parameter"),
        (["gemm", "--set", "hw=3"], "--set hw: is no parameter"),
        (["gemm", "--mesh", "cube"], "mesh 'cube': choose"),
        (["gemm", "--preset", "wse9"], "unknown preset 'wse9'"),
        (["gemm-table", "--mesh", "line"], "takes no --set and no --mesh"),
        (["gemv-table", "--sizes", "1,2,3"], "size 1: give sizes from 2 on"),
    ],
)
def test_mistakes_are_one_line(wafer, arguments, message):
    assert message in wafer("audit", *arguments).error


def test_a_file_that_is_no_program(wafer, tmp_path):
    path = tmp_path / "text.npz"
    path.write_text("no archive")
    assert "not a program file" in wafer("audit", path).error
    assert "text.npz" in wafer("audit", path).error
    assert wafer("audit", tmp_path).code == 2
