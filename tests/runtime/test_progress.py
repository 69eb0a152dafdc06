"""What a long run says of the time left."""

import pytest

from wafer_jax.runtime.progress import duration, progress_text


@pytest.mark.parametrize(
    ("cycle", "min_cycles", "tail"),
    [
        (1_000, 6_000, ", at least 50 s left at this rate"),
        (1_000, 0, ""),
        (6_000, 6_000, ""),
        (9_000, 6_000, ""),
    ],
)
def test_only_a_lower_bound_is_given(cycle, min_cycles, tail):
    text = progress_text(cycle, 1e6, num_pes=10_000, min_cycles=min_cycles)
    assert text == f"cycle {cycle:,}, 1.0 M PE-cycles/s{tail}"


def test_no_rate_no_time():
    assert "left" not in progress_text(0, 0.0, 4, 100)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (89, "89 s"), (120, "2 min"), (5399, "1 h 30 min"), (7200, "2 h 0 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
