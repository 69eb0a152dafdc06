import json

import jax
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from wafer_jax.hardware import hardware, preset_names
from wafer_jax.report.capacities import capacities
from wafer_jax.report.frames import cell, heading, plain, records, table, texts
from wafer_jax.report.provenance import provenance


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345, "12,345"),
        (np.int64(7), "7"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (0.0, "0"),
        (0.01234567, "0.01235"),
        (1.5e-6, "1.50e-06"),
        (12345.678, "12,346"),
        (-3.25, "-3.25"),
        (float("nan"), ""),
        (float("inf"), "inf"),
        (None, ""),
        ((4, 2), "4 2"),
        ("a[b]c", "a[b]c"),
    ],
)
def test_cells(value, text):
    assert cell(value) == text


def test_headings_carry_units():
    assert heading("compute_cycles") == "compute\ncycles"
    assert heading("max_difference") == "max difference"
    assert heading("cycles") == "cycles"


def test_a_table_shows_names_as_they_are():
    """Brackets in a name are no markup, and numbers stand under each other."""
    frame = pd.DataFrame({"name": ["[red]x[/]", "y"], "sent_bytes": [5, 12345]})
    console = Console(width=60, file=None)
    with console.capture() as capture:
        console.print(table(frame, title="Traffic"))
    lines = [line.strip() for line in capture.get().splitlines()]
    assert lines == [
        "Traffic",
        "sent",
        "name        bytes",
        "[red]x[/]       5",
        "y          12,345",
    ]


def test_plain_values_are_json():
    frame = pd.DataFrame({"a": np.arange(2), "b": [0.5, np.nan], "c": [(1, 2), None]})
    expected = [{"a": 0, "b": 0.5, "c": [1, 2]}, {"a": 1, "b": None, "c": None}]
    assert records(frame) == expected
    value = {"frame": frame, "array": np.ones((1, 2), np.float32), "inf": np.float32("inf")}
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == {"frame": expected, "array": [[1.0, 1.0]], "inf": None}


@pytest.mark.parametrize("preset", preset_names())
def test_every_capacity_has_its_source(preset):
    frame = capacities(hardware(preset))
    assert frame["source"].str.len().min() > 0
    assert frame.set_index("key").loc["data_bytes", "value"] == hardware(preset).data_bytes


def test_provenance():
    spec = hardware("wse2", mesh=(3, 5))
    found = provenance(spec, seed=4, level="bulk")
    assert found["preset_hash"] == spec.hash != provenance(hardware("wse2"))["preset_hash"]
    assert (found["mesh"], found["seed"], found["level"]) == ([3, 5], 4, "bulk")
    assert found["jax_version"] == jax.__version__


def test_percents_have_one_decimal_and_no_negative_zero():
    frame = pd.DataFrame({"error_percent": [-0.04, 12.345, None, -3.0]})
    assert texts(frame) == [["0.0"], ["12.3"], [""], ["-3.0"]]
