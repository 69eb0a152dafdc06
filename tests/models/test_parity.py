import numpy as np
import pytest

from wafer_jax.models.parity import compare, first_departure


def test_the_first_stage_that_departs_is_named():
    good, far = np.array([[2.0, -4.0]]), np.array([[2.0, -3.0]])
    frame = compare([("a", good, good), ("b", far, good), ("c", far, good)], tolerance=0.2)
    assert frame["passes"].tolist() == [True, False, False]
    row = first_departure(frame)
    assert row is not None
    assert (row["stage"], row["difference"], row["relative"]) == ("b", 1.0, 0.25)
    assert first_departure(compare([("b", far, good)], tolerance=0.25)) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_never_passes(value):
    bad, good = np.array([1.0, value]), np.array([1.0, 2.0])
    for found, expected in ((bad, good), (good, bad), (bad, bad)):
        assert not compare([("a", found, expected)], tolerance=1e9)["passes"].any()


def test_a_large_token_hides_no_other():
    expected = np.array([[20000.0, 0.0], [1.0, 2.0]])
    found = expected + np.array([0.0, 0.5])
    frame = compare([("a", found, expected)], tolerance=0.1)
    assert frame.iloc[0].tolist() == ["a", 0.5, 2.0, 0.25, False]


def test_a_reference_of_zeros():
    zero = np.zeros(3)
    assert compare([("a", zero, zero)], tolerance=0.0)["passes"].all()
    assert not compare([("a", zero + 1, zero)], tolerance=0.5)["passes"].any()


def test_differences_are_taken_in_float64():
    a, b = np.float32([1 + 2**-23]), np.float32([1])
    assert compare([("a", a, b)], tolerance=1.0)["difference"][0] == 2.0**-23
    with pytest.raises(ValueError, match="shapes"):
        compare([("a", np.ones(2), np.ones(3))], tolerance=1.0)
