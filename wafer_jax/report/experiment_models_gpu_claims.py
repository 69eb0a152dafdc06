"""What WaferLLM's text states about tables 7 and 8, and our figures."""

import pandas as pd

from wafer_jax.report.experiment import Reading, Statement
from wafer_jax.report.experiment_claims import verdict_of

_ONE, _EIGHT, _SIXTEEN = "A100 x1", "A100 x8", "A100 2x8"
_SOURCES = {"published speeds": "paper", "ours": "ours"}


def _by_model(frame: pd.DataFrame, column: str) -> dict[str, dict[str, float]]:
    """Figures by model, then by what they are of."""
    found: dict[str, dict[str, float]] = {}
    for row in frame.to_dict("records"):
        found.setdefault(row["model"], {})[row["what"]] = row[column]
    return found


def more_gpus(speeds: pd.DataFrame, least: float, most: float) -> Statement:
    """Whether eight GPUs are so many times faster than one."""
    readings = []
    for name, column in (("published speeds", "paper"), ("rooflines", "ours")):
        gains = {m: of[_EIGHT] / of[_ONE] for m, of in _by_model(speeds, column).items()}
        words = ", ".join(f"{model} {gain:.2f}" for model, gain in gains.items())
        holds = [least <= round(gain, 1) <= most for gain in gains.values()]
        readings.append(Reading(name, f"Times: {words}", verdict_of(holds)))
    return Statement(
        f"Eight A100s are {least} to {most} times faster than one",
        tuple(readings),
        "By the published speeds the range holds for the smaller model alone; which models the "
        "text means is not at hand. Rooflines have no communication, so eight are eight times "
        "faster.",
    )


def two_machines(speeds: pd.DataFrame) -> Statement:
    """Whether sixteen GPUs are slower than eight."""
    speed = _by_model(speeds, "paper")
    words = ", ".join(
        f"{m} {100 * (of[_SIXTEEN] / of[_EIGHT] - 1):+.0f} %" for m, of in speed.items()
    )
    holds = [of[_SIXTEEN] < of[_EIGHT] for of in speed.values()]
    return Statement(
        "Two machines of eight are slower than one, by the traffic between them",
        (
            Reading("published speeds", words, verdict_of(holds)),
            Reading("rooflines", "No traffic between GPUs", "not modelled"),
        ),
        "Neither NVLink nor InfiniBand is part of the rooflines.",
    )


def faster_than_gpus(speeds: pd.DataFrame) -> Statement:
    """How many times faster the wafer is than the fastest GPUs."""
    published = _by_model(speeds, "paper")
    fastest = {m: max(of[g] for g in (_ONE, _EIGHT, _SIXTEEN)) for m, of in published.items()}
    readings = []
    for name, column in _SOURCES.items():
        gains = {m: of["WSE-2"] / fastest[m] for m, of in _by_model(speeds, column).items()}
        words = ", ".join(f"{model} {gain:.2f}" for model, gain in gains.items())
        readings.append(
            Reading(name, f"Times: {words}", verdict_of(gain > 1 for gain in gains.values()))
        )
    return Statement(
        "A WSE-2 is faster than the fastest number of A100s",
        tuple(readings),
        "Ours: our speed of the wafer, published speeds of the GPUs.",
    )


def less_energy(energies: pd.DataFrame, speeds: pd.DataFrame) -> Statement:
    """Decode: 2 to 2.5 times less energy than the GPUs at their fastest."""
    readings = []
    for name, column in _SOURCES.items():
        ratios = _at_fastest(energies, speeds, column)
        words = ", ".join(f"{model} {ratio:.2f}" for model, ratio in ratios.items())
        holds = [2 <= round(ratio, 1) <= 2.5 for ratio in ratios.values()]
        readings.append(Reading(name, f"Times: {words}", verdict_of(holds)))
    return Statement(
        "Decode takes 2 to 2.5 times less energy than on the fastest number of A100s",
        tuple(readings),
        "The fastest is eight for both models. By the published speeds, too, the range holds for "
        "the smaller model alone.",
    )


def more_energy(energies: pd.DataFrame, speeds: pd.DataFrame) -> Statement:
    """Prefill: the text claims no gain in energy."""
    readings = []
    for name, column in _SOURCES.items():
        ratios = _at_fastest(energies, speeds, column)
        words = ", ".join(f"{model} {ratio:.2f}" for model, ratio in ratios.items())
        readings.append(
            Reading(name, f"Times: {words}", verdict_of(ratio < 1 for ratio in ratios.values()))
        )
    return Statement(
        "Gains in energy are stated for decode alone: prefill takes more than on A100s",
        tuple(readings),
        "Energy of the fastest number of A100s over the wafer's. Prefill keeps a GPU's arithmetic "
        "busy, and a wafer of 37.5 times the power is 1.2 to 1.6 times faster.",
    )


def _at_fastest(energies: pd.DataFrame, speeds: pd.DataFrame, column: str) -> dict[str, float]:
    """Ratio of energy of the fastest number of GPUs, by model."""
    speed = _by_model(speeds, "paper")
    fastest = {m: max((_ONE, _EIGHT, _SIXTEEN), key=of.__getitem__) for m, of in speed.items()}
    ratios = _by_model(energies, column)
    return {model: ratios[model][f"{gpus} / WSE-2"] for model, gpus in fastest.items()}
