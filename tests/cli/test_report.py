import pytest
from report.test_reproduction import parts as parts

from wafer_jax.report import experiments, reproduction


def test_the_summary_is_shown_and_a_failure_is_the_exit_code(wafer, parts):
    shown = wafer("report", "--quick")
    assert shown.code == 1
    assert "Published figures done again" in shown.out
    assert "failed: bad: RuntimeError: division by <zero> [bold]" in shown.out


def test_the_report_is_written(wafer, parts, tmp_path, monkeypatch):
    good = experiments._known()["good"]  # a part of the fixture
    monkeypatch.setattr(experiments, "_known", lambda: {"good": good})
    done = wafer("report", "--out", tmp_path / "out")
    assert done.code == 0
    assert f"Written: {tmp_path / 'out' / 'report.html'}" in done.out
    assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".html", ".md", ".json", ".png"}
    record = wafer("report", "--json").json
    assert record["command"] == "report"
    assert [row["part"] for row in record["summary"]] == ["good", "validation"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("no/such", "no folder no"),
        ("file", "file: it is a file"),
        ("full", "holds other files (letter.txt)"),
        ("file/out", "cannot write"),
        ("\0", "null byte"),
        ("x" * 300, "cannot write"),
    ],
)
def test_folders_that_cannot_be_written_are_refused_before_the_work(
    wafer, parts, out, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(reproduction, "reproduce", lambda **_: pytest.fail("work was begun"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert message in wafer("report", "--out", out).error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]
