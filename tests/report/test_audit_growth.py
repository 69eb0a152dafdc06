import math

import pytest

from wafer_jax.report.audit_growth import growth

SHORT, LONG = (4, 8, 16, 32), (4, 8, 16, 32, 64, 128, 256)


@pytest.mark.parametrize("sizes", [SHORT, LONG, (5, 9, 12, 31, 50)], ids=str)
@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("O(1)", lambda n: 6),
        ("O(1)", lambda n: 1 - 1 / n),
        ("O(1)", lambda n: 2 * (n - 1) / n),
        ("O(log N)", lambda n: 3 + 2 * math.log2(n)),
        ("O(sqrt N)", lambda n: math.sqrt(n) + 1),
        ("O(N)", lambda n: n - 1),
        ("O(N)", lambda n: 4 * n - 6),
        ("O(N^2)", lambda n: n * n - n),
        ("O(1/N)", lambda n: 3 / n),
        ("O(1/N^2)", lambda n: 5 / n**2),
    ],
)
def test_growth_of_plain_functions(sizes, name, of):
    assert growth(sizes, [of(n) for n in sizes]).name == name


def test_what_is_rounded_and_what_settles():
    assert growth(LONG, [math.isqrt(n) + 1 for n in LONG]).name == "O(sqrt N)"
    assert growth(LONG, [min(n, 9) for n in LONG]).name == "O(1)"
    assert growth(LONG, [round(n ** (1 / 3)) * 3 + 1 for n in LONG]).name == "O(N^(1/3))"


def test_a_late_step_is_no_high_power():
    assert growth((4, 8, 16), (3, 3, 5)).name in ("O(sqrt N)", "O(N)")
    assert growth(SHORT, [100 + n for n in SHORT]).name == "O(N)"
    assert growth(SHORT, [0, 0, 1, 3]) is not None


def test_exponent_and_symbol():
    fit = growth((1, 2, 3, 4), (2, 4, 6, 8), "K")
    assert (fit.name, round(fit.exponent, 6)) == ("O(K)", 1)
    assert growth(SHORT, [5 / n**2 for n in SHORT]).exponent == pytest.approx(-2)
    assert math.isnan(growth(SHORT, [0, 0, 0, 0]).exponent)
    assert growth(SHORT, [0, 0, 0, 0]).name == "O(1)"
    assert growth(SHORT, [0, 0, 0, 0]).shown_exponent == ""


def test_few_or_close_sizes_have_no_growth():
    assert growth((4, 16), (1, 2)) is None
    assert growth((4, 5, 6), (1, 2, 3)) is None
    assert growth((4, 5, 16), (1, 2, 13)) is not None
