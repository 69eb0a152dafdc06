"""The report over all experiments: its page, its files, and parts that fail."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import matplotlib
import pandas as pd
import pytest

import wafer_jax as wj
from wafer_jax.report import experiments, files, reproduction
from wafer_jax.report.experiment import Experiment, Reading, Section, Statement
from wafer_jax.report.experiment_rows import Tally, frame, row
from wafer_jax.report.provenance import provenance

matplotlib.use("Agg")

ROWS = frame([
    row(what="<b>fast</b>", paper=100.0, ours=104.0, level="cost", bar=5),
    row(what="a | b", paper=100.0, ours=130.0, level="cost", bar=5),
    row(what="informs", paper=100.0, ours=150.0, level="cost"),
])  # fmt: skip


def small(name: str) -> Experiment:
    """An experiment that takes nothing to do."""
    readings = (Reading("ours", "1 < 2 & so", "yes"), Reading("theirs", "no", "not modelled"))
    return Experiment(
        name=name,
        title=f"A <title> of {name}",
        origin=provenance(wj.hardware("toy"), level="cost"),
        sections=(Section("Rows (level cost)", ROWS, "A note."),),
        statements=(Statement("It is fast", readings, "Because <i>."),),
        figures=ROWS,
        draw=lambda figure: figure.subplots().plot([1, 2]),
        plot_inches=(2, 2),
    )


def fake(name: str, do) -> SimpleNamespace:
    return SimpleNamespace(NAME=name, SUMMARY=f"summary of {name}", experiment=do)


def broken(quick, progress):
    raise RuntimeError("division\nby <zero> [bold]")


def table_of_a_check(say):
    say("comparing")
    shown = pd.DataFrame({"family": ["a"], "bar": ["x"], "met": [False]})
    return {
        "origin": provenance(),
        "sections": (Section("Families", shown),),
        "tally": Tally(7, 1.0, 2.0, 1, 1, ("fabric",)),
    }


@pytest.fixture
def parts(monkeypatch):
    """Two experiments, one of which fails, and a check, in place of the real ones."""
    modules = [fake("good", lambda quick, progress: small("good")), fake("bad", broken)]
    monkeypatch.setattr(experiments, "_known", lambda: {m.NAME: m for m in modules})
    check = ("validation", "A check", "wafer-jax validate", table_of_a_check)
    monkeypatch.setattr(reproduction, "validated", lambda: check)
    monkeypatch.setattr(reproduction, "audited", tuple)


class Page(HTMLParser):
    """What a page has: tags, ids, links, texts of cells by row, classes of rows."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids, self.links, self.sources, self.rows = [], [], [], []
        self.titles: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.sources += [given["src"]] if "src" in given else []
        if tag == "tr":
            self.rows.append((given.get("class"), []))
        if tag in ("td", "th"):
            self.rows[-1][1].append("")
        if tag == "h2":
            self.titles.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][1][-1] += data
        if "h2" in self.open:
            self.titles[-1] += data


def test_the_summary_counts_rows_bars_verdicts_and_failures(parts):
    done = wj.reproduce()
    assert done.failed == ("bad",)
    good, bad, check = done.summary().to_dict("records")
    assert (good["part"], good["rows"], good["with bar"], good["missed"]) == ("good", 3, 2, 1)
    assert (good["median_percent"], good["worst_percent"]) == pytest.approx((30, 50))
    assert (good["yes"], good["no"], good["not modelled"]) == (1, 0, 1)
    assert (bad["level"], bad["rows"]) == ("failed", 0)
    assert (check["rows"], check["missed"], check["level"]) == (7, 1, "fabric")
    assert list(done.missed()["row"]) == ["a | b"]
    shown = str(done)
    assert "failed: bad: RuntimeError: division by <zero> [bold]" in shown
    assert "a | b" in shown


def test_the_page_has_every_part_its_rows_and_its_failures(parts, tmp_path):
    page = wj.reproduce().write(tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    text = page.read_text()
    found = Page(text)
    assert found.titles == ["good", "bad", "validation"]
    targets = {link.removeprefix("#") for link in found.links}
    assert targets == {"summary", "good", "bad", "validation"}
    assert targets <= set(found.ids)
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in found.sources)
    assert len(found.sources) == 1
    missed = [cells for kind, cells in found.rows if kind == "missed"]
    assert [cells[0] for cells in missed] == ["goodA <title> of good", "validationA check",
                                              "a | b", "a"]  # fmt: skip
    assert missed[2][1:] == ["100", "130", "30.0", "5.0", "misses", "cost"]
    assert [cells[0][:3] for kind, cells in found.rows if kind == "failed"] == ["bad"]
    for raw in ("<b>fast", "<title> of", "<i>.", "<zero>", "1 < 2"):
        assert raw not in text
    assert "wafer-jax experiment good" in text
    assert wj.hardware("toy").hash in text


def test_markdown_and_json_have_the_same(parts, tmp_path):
    wj.reproduce(quick=True).write(tmp_path / "out")
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "report.md", "report.json", "good.png"}
    text = (tmp_path / "out" / "report.md").read_text()
    assert [t for t in re.findall(r"^## (.*)$", text, re.MULTILINE)] == [
        "Summary", "good", "bad", "validation"]  # fmt: skip
    assert "| a \\| b | 100 | 130 | 30.0 | 5.0 | **misses** | cost |" in text
    assert "![A <title> of good](good.png)" in text
    assert "Alone: `wafer-jax experiment good --quick`" in text
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["quick"] is True
    assert [c["error"] is None for c in record["chapters"]] == [True, False, True]
    assert record["chapters"][0]["sections"][0]["frame"][1]["met"] is False


def test_the_same_figures_give_the_same_files(parts, tmp_path):
    for folder in ("one", "two"):
        wj.reproduce().write(tmp_path / folder)
    for one in (tmp_path / "one").iterdir():
        assert one.read_bytes() == (tmp_path / "two" / one.name).read_bytes()


def test_an_earlier_report_is_replaced_and_nothing_else(parts, tmp_path):
    done = wj.reproduce()
    out = tmp_path / "out"
    done.write(out)
    (out / "report.md").write_text("old")
    (out / "good.png").write_text("old")
    done.write(out)
    assert "old" not in {p.read_text() for p in out.iterdir() if p.suffix == ".md"}
    (out / "mine.txt").write_text("keep")
    with pytest.raises(wj.WaferError, match=r"other files \(mine.txt\)"):
        done.write(out)
    assert (out / "mine.txt").read_text() == "keep"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_page_that_cannot_be_made_leaves_what_was_there(parts, tmp_path, monkeypatch):
    done = wj.reproduce()
    done.write(tmp_path / "out")
    before = (tmp_path / "out" / "report.md").read_bytes()
    monkeypatch.setattr(reproduction.reproduction_page, "markdown", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        done.write(tmp_path / "out")
    with pytest.raises(ZeroDivisionError):
        done.write(tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "report.md").read_bytes() == before


def test_a_disk_that_refuses_leaves_the_earlier_folder(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    replace = files.Path.replace

    def refuses(self, target):
        if (self / "new").exists():
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(files.Path, "replace", refuses)
    with (
        pytest.raises(wj.WaferError, match="No space left"),
        files.atomic_folder(tmp_path / "out", lambda name: True) as temporary,
    ):
        (temporary / "new").write_text("new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "a").read_text() == "old"


def test_progress_says_how_far_it_is(parts):
    said = []
    wj.reproduce(progress=said.append)
    assert said[0] == "1 of 3, good"
    assert said[-1] == "3 of 3, validation: comparing"


def test_an_interrupt_is_none_of_the_failures(monkeypatch, parts):
    def interrupted(quick, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "_known", lambda: {"stopped": fake("stopped", interrupted)})
    with pytest.raises(KeyboardInterrupt):
        wj.reproduce()


def test_the_real_parts_are_all_experiments_the_validation_and_the_audit():
    full, quick = ([task[0] for task in reproduction._tasks(q)] for q in (False, True))
    names = list(experiments.experiment_names())
    assert full == [*names, "validation", "audit-gemm-table", "audit-gemv-table"]
    assert quick == [*names, "validation"]
