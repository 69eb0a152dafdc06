"""How a figure grows over a sweep of sizes.

Growing figures are fitted as ``a + b f(N)``, b > 0, shrinking ones as ``b f(N)``, by least squares
of the relative errors over a few functions f; of those that fit about equally well the slowest one
is taken. The constant a is what keeps N - 1, or a few stages besides the tree's, from looking like
another power of N. The exponent that is given beside it is the plain slope of log value over log N.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

MIN_SIZES, MIN_SPAN = 3, 4
"""A growth is fitted to at least so many sizes, the largest at least so many times the smallest."""
_AS_GOOD = 0.01
"""Relative error (root mean square) by which a slower function may be worse."""
_GROWING: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "1": (0, lambda n: -1 / n),
    "log {}": (0, np.log),
    "{}^(1/3)": (1 / 3, np.cbrt),
    "sqrt {}": (1 / 2, np.sqrt),
    "{}": (1, lambda n: n),
    "{}^2": (2, np.square),
    "{}^3": (3, lambda n: n**3),
}
"""Power of N, and function; powers far above the slope of the values would fit a late step."""
_SHRINKING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "1/sqrt {}": lambda n: n**-0.5,
    "1/{}": lambda n: 1 / n,
    "1/{}^2": lambda n: n**-2.0,
}


@dataclass(frozen=True)
class Growth:
    """The growth of one figure.

    Attributes:
      name: Such as "O(1)" or "O(sqrt N)".
      exponent: Slope of log value over log size by least squares; NaN if a value is not positive.
      error: Relative error of the fit (root mean square).
    """

    name: str
    exponent: float
    error: float

    def __str__(self) -> str:
        return self.name

    @property
    def shown_exponent(self) -> str:
        """With two decimals; empty where there is none."""
        return f"{self.exponent + 0.0:.2f}".replace("-0.00", "0.00").replace("nan", "")


def growth(sizes: Sequence[int], values: Sequence[float], symbol: str = "N") -> Growth | None:
    """Fit a growth.

    Args:
      sizes: Increasing, at least 2.
      values: One per size, not negative.
      symbol: Stands for the size in the name.

    Returns:
      The growth, or None for too few sizes, or too close ones.
    """
    if len(sizes) < MIN_SIZES or sizes[-1] < MIN_SPAN * sizes[0]:
        return None
    n, v = np.asarray(sizes, float), np.asarray(values, float)
    exponent = float(np.polyfit(np.log(n), np.log(v), 1)[0]) if (v > 0).all() else float("nan")
    settled = v[len(v) // 2 :]
    if settled.max() <= 1.02 * settled.min():
        return Growth("O(1)", exponent, _error(np.full(len(v), v[-1]), v))
    if v[-1] > v[0]:
        most = 1 + (exponent if np.isfinite(exponent) else 3)
        fits = {name: _affine(f(n), v) for name, (power, f) in _GROWING.items() if power <= most}
    else:
        fits = {name: _scaled(f(n), v) for name, f in _SHRINKING.items()}
    best = min(fits.values())
    name = next(name for name, error in fits.items() if error <= best + _AS_GOOD)
    return Growth(f"O({name.replace('{}', symbol)})", exponent, fits[name])


def _affine(f: np.ndarray, v: np.ndarray) -> float:
    """Error of the best ``a + b f``; infinite if b is not positive."""
    weight = 1 / np.maximum(v, 1e-12)
    columns = np.stack([np.ones(len(f)), f], axis=1)
    (a, b), *_ = np.linalg.lstsq(columns * weight[:, None], v * weight, rcond=None)
    return _error(a + b * f, v) if b > 0 else float("inf")


def _scaled(f: np.ndarray, v: np.ndarray) -> float:
    """Error of the best ``b f``."""
    ratio = f / np.maximum(v, 1e-12)
    return _error(f * ratio.sum() / (ratio @ ratio), v)


def _error(fit: np.ndarray, v: np.ndarray) -> float:
    return float(np.sqrt(np.mean(((fit - v) / np.maximum(v, 1e-12)) ** 2)))
