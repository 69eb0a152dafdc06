"""Published figures beside ours: errors, bars, and what is counted of them."""

import pandas as pd
import pytest

from wafer_jax.report.experiment_rows import COLUMNS, frame, paper_column, row, tally, with_bar


def test_a_row_has_its_error_and_says_whether_the_bar_is_met():
    met = row(what="a", paper=200.0, ours=191.0, level="cost", bar=5)
    missed = row(what="b", paper=200.0, ours=211.0, level="cost", bar=5)
    informs = row(what="c", paper=200.0, ours=400.0, level="fabric")
    assert met["error_percent"] == pytest.approx(-4.5)
    assert (met["met"], missed["met"], informs["met"]) == (True, False, None)
    table = frame([met, missed, informs])
    assert list(table.columns) == ["what", *COLUMNS]
    assert list(table["met"]) == [True, False, None]
    assert paper_column(table) == "paper"
    assert paper_column(table.rename(columns={"paper": "paper_tokens_per_s"})) is not None
    assert paper_column(table.drop(columns="level")) is None


def test_a_tally_counts_rows_of_all_tables_but_bars_only_where_there_are_any():
    given = (1.03, "cost", 5), (0.92, "cost", 5), (1.5, "fabric", None)
    rows = [row(paper=1, ours=ours, level=level, bar=bar) for ours, level, bar in given]
    other = pd.DataFrame({"grid": [1], "cycles": [2]})
    prediction = {"paper": None, "ours": 1.0, "error_percent": None, "level": "cost"}
    bounds = [row(paper=1, ours=20, level="roofline"), row(paper=1, ours=2, level="formula", bar=1)]
    tables = [frame(rows[:2]), other, frame(rows[2:]), pd.DataFrame([prediction]), frame(bounds)]
    found = tally(tables)
    assert (found.rows, found.with_bar, found.missed) == (3, 3, 2)
    assert found.median_percent == pytest.approx(8)
    assert found.worst_percent == pytest.approx(50)
    assert found.levels == ("cost", "fabric")


def test_tables_without_such_rows_have_no_tally():
    nothing = tally([pd.DataFrame({"paper": [1.0]})])
    assert (nothing.rows, nothing.median_percent, nothing.worst_percent) == (0, None, None)


def test_a_bar_holds_for_rows_with_a_published_figure():
    table = pd.DataFrame({"error_percent": [4.0, None, -6.0], "level": "cost"}, index=[3, 1, 2])
    held = with_bar(table, 5)
    assert list(held.columns) == ["error_percent", "bar_percent", "met", "level"]
    assert list(held["met"]) == [True, None, False]
    assert list(held["bar_percent"].notna()) == [True, False, True]
    assert "met" not in table
