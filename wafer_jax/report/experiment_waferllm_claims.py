"""What WaferLLM's text and tables 2 to 4 state, and our figures."""

from collections.abc import Iterable
from itertools import pairwise
from statistics import mean

import pandas as pd

from wafer_jax.report.experiment import Reading, Statement, Verdict
from wafer_jax.report.experiment_claims import verdict_of
from wafer_jax.report.frames import records
from wafer_jax.report.waferllm_rates import BARS, GPUS, OWN

_NEAR = 1.3
"""Baselines, and stated speedups, are reproduced within this factor."""

_Rates = dict[tuple[str, ...], float]
"""Tokens/s by model and size, or by model and request, in their order."""


def prefill_statements(figures: pd.DataFrame) -> tuple[Statement, ...]:
    """Of table 3 (section 7.1)."""
    return (
        _errors("Tokens/s of the prefill", figures, BARS["prefill"]),
        _trend(figures, ("WaferLLM", OWN), "rise", _PRODUCTS),
        _trend(figures, ("T10", "Ladder"), "fall", _ROUTED),
        _gain(figures, "qwen2-72b", 1.6),
        _speedup(figures, "T10", 160, "160 times on average, at most 178"),
        _speedup(figures, "Ladder", 360, "270 to 450 times on average"),
        _above_gpus(figures, "faster than the best number of A100s", 1.0, float("inf")),
    )


def decode_statements(figures: pd.DataFrame) -> tuple[Statement, ...]:
    """Of table 4 (section 7.1)."""
    return (
        _errors("Tokens/s of the decode", figures, BARS["decode"]),
        _trend(figures, ("WaferLLM", OWN), "fall", _STAGES),
        _trend(figures, ("T10",), "fall", _ROUTED),
        _speedup(figures, "T10", 5.7, "5.7 times on average, at most 6.5"),
        _speedup(figures, "Ladder", 217, "217 times on average, at most 260"),
        _above_gpus(figures, "faster than the best number of A100s", 1.0, float("inf")),
    )


def request_statements(figures: pd.DataFrame) -> tuple[Statement, ...]:
    """Of table 2 (section 7.1)."""
    return (
        _errors("Tokens/s of whole requests", figures, BARS["request"]),
        _above_gpus(figures, "6 to 20 times as fast as the best number of A100s", 6.0, 20.0),
    )


_PRODUCTS = "Products shrink with the square of the side and take as many steps as it has PEs."
_ROUTED = "What they pay per step goes through every core on the way, so it grows with the side."
_STAGES = """\
Hops and stages of the allreduces grow with the side, local products are small. Our own operators \
pay so little for a stage that the larger models gain from more PEs."""


def _errors(what: str, figures: pd.DataFrame, bar: float) -> Statement:
    readings = []
    for system in ("WaferLLM", "T10", "Ladder"):
        groups = {c: _known_errors(figures, system, c) for c in ("held out", "fitted")}
        texts = [_span(name, percents) for name, percents in groups.items() if percents]
        percents = [p for group in groups.values() for p in group]
        if system == "WaferLLM":
            near = [abs(p) <= bar for p in percents]
        else:
            near = [1 / _NEAR <= 1 + p / 100 <= _NEAR for p in percents]
        readings.append(Reading(system, "; ".join(texts), verdict_of(near)))
    return Statement(
        what,
        tuple(readings),
        f"A yes within {bar:.0f} %, of the baselines within a factor of {_NEAR}. The constants, "
        "and what was fitted to what, are in docs/experiments.md.",
    )


def _trend(figures: pd.DataFrame, systems: Iterable[str], direction: str, reason: str) -> Statement:
    readings, sign = [], 1 if direction == "rise" else -1
    systems = tuple(systems)
    for system in systems:
        holds = {
            model: all(sign * (b - a) > 0 for a, b in pairwise(values))
            for model, values in _by_model(_rates(figures, system)).items()
        }
        words = ", ".join(f"{model} {'yes' if ok else 'no'}" for model, ok in holds.items())
        readings.append(Reading(system, words, verdict_of(holds.values())))
    names = " and ".join(s for s in systems if s != OWN)
    return Statement(f"{names}: rates {direction} as the mesh grows", tuple(readings), reason)


def _gain(figures: pd.DataFrame, model: str, stated: float) -> Statement:
    readings = []
    for system in ("WaferLLM", OWN):
        first, *_, last = _by_model(_rates(figures, system))[model]
        readings.append(Reading(system, f"{last / first:.2f} times", _near(last / first, stated)))
    return Statement(
        f"{model} is {stated} times faster on the largest grid than on the smallest",
        tuple(readings),
        f"A yes within a factor of {_NEAR}.",
    )


def _speedup(figures: pd.DataFrame, baseline: str, stated: float, words: str) -> Statement:
    ours = _over(_rates(figures, "WaferLLM"), _rates(figures, baseline))
    paper = _over(_rates(figures, "WaferLLM", "paper_"), _rates(figures, baseline, "paper_"))
    text = f"{min(ours):.3g} to {max(ours):.3g}, mean {mean(ours):.3g}"
    return Statement(
        f"WaferLLM over {baseline}: {words}",
        (Reading("all models and grids", text, _near(mean(ours), stated)),),
        "Which rows are averaged is not stated; those of the table that are known have "
        f"{min(paper):.3g} to {max(paper):.3g}. A yes if the mean is within a factor of {_NEAR}.",
    )


def _above_gpus(figures: pd.DataFrame, claim: str, low: float, high: float) -> Statement:
    """Our figures over the best of the paper's for GPUs, per model and, of requests, for each."""
    best = _best(_rates(figures, GPUS, "paper_"))
    readings = []
    for system in ("WaferLLM", OWN):
        ours = _best(_rates(figures, system))
        times = {key: ours[key] / best[key] for key in best}
        words = ", ".join(f"{' '.join(key)} {v:.3g} times" for key, v in times.items())
        holds = [low <= v <= high for v in times.values()]
        readings.append(Reading(system, words, verdict_of(holds)))
    return Statement(
        f"WaferLLM is {claim}",
        tuple(readings),
        "Ours on the best grid over the paper's figures of the GPUs.",
    )


def _rates(figures: pd.DataFrame, system: str, column: str = "") -> _Rates:
    """A column's known figures of a system, ours or (with "paper_") the paper's."""
    request = ["prompt", "answer"] if "prompt" in figures else []
    rates = {}
    for row in records(figures.query("system == @system")):
        value = row[f"{column}tokens_per_s"]
        if value is not None:
            where = "/".join(str(row[name]) for name in request)
            rates[str(row["model"]), where, str(row["size"])] = float(value)
    return rates


def _span(name: str, percents: list[float]) -> str:
    if len(percents) == 1:
        return f"1 row {name}: {percents[0]:+.1f} %"
    return f"{len(percents)} rows {name}: {min(percents):+.1f} to {max(percents):+.1f} %"


def _known_errors(figures: pd.DataFrame, system: str, constants: str) -> list[float]:
    rows = figures.query("system == @system and constants == @constants")
    return [float(row["error_percent"]) for row in records(rows)]


def _by_model(rates: _Rates) -> dict[str, list[float]]:
    models: dict[str, list[float]] = {}
    for (model, *_), value in rates.items():
        models.setdefault(model, []).append(value)
    return models


def _best(rates: _Rates) -> _Rates:
    """The largest over all sizes."""
    best: _Rates = {}
    for (*key, _), value in rates.items():
        known = tuple(part for part in key if part)
        best[known] = max(value, best.get(known, value))
    return best


def _over(a: _Rates, b: _Rates) -> list[float]:
    return [a[key] / b[key] for key in a if key in b]


def _near(ours: float, stated: float) -> Verdict:
    return "yes" if 1 / _NEAR <= ours / stated <= _NEAR else "no"
