"""WaferLLM's table 5: how many tokens a KV cache takes by concatenation and by shifting."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.hardware import HardwareSpec, hardware
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.placement import kv_capacity
from wafer_jax.report import experiment_rows, kv_balance
from wafer_jax.report.experiment import Experiment, Progress, Section, settings
from wafer_jax.report.experiment_kv_claims import statements
from wafer_jax.report.kv_balance import Region
from wafer_jax.report.kv_filling import POLICIES, fill, fill_fabric
from wafer_jax.report.provenance import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "waferllm-table-5"
SUMMARY = "Capacity of a KV cache by shifting against concatenation, filled until it is full"


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    models: tuple[list, ...]
    fills: tuple[list[int], ...]
    watched_vectors: int
    fabric_fills: tuple[list[int], ...]
    ratio_bar: float
    capacity_bar: float


_CAPACITY_NOTE = """\
Tokens per region. By a run: slots of whole tokens, as many as the paper's concat holds, filled \
until one is lost. Tiles of this package: whole slots that fit beside its own tiles and buffers, \
nothing fitted. Other rows cut tensors evenly and keep bytes for code and buffers: those that the \
other model's figure leaves, those of the smallest kernel, the text section of the published \
decode program. From its own figure, c is exact by construction: these rows have no bar."""
_BYTES_NOTE = """\
Inference: the paper states none of these. Layers: cores of the wafer over those of a region, so \
6.6 or 6.0 regions, which need not be square. Left is what the published capacity leaves of the \
SRAM for code and buffers."""
_FILL_NOTE = """\
Spread: largest difference between the fills of two rows. Hops: farthest move of a vector in one \
append; empty where not each append was looked at. In order: from the top row down, vectors are in \
order of time."""
_FABRIC_NOTE = """\
Cycles of all appends together, a program each. The closed form of short vectors may be off by one \
each."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; ``quick`` runs less on the fabric."""
    chosen = settings(NAME, quick, Settings)
    hw = hardware(chosen.preset)
    fills = _fills(chosen, progress)
    fabric = _fabric(chosen, hw, progress)
    progress("bytes of the regions")
    rows = _ratio_rows(chosen, fills) + _capacity_rows(chosen, hw, fills)
    capacities = experiment_rows.frame(rows)
    return Experiment(
        name=NAME,
        title="Capacity of the KV cache, tokens (WaferLLM, table 5)",
        origin=provenance(hw, level="bulk, cost, fabric") | {"mesh": None},
        sections=(
            Section("Table 5 and ours (levels bulk and cost)", capacities, _CAPACITY_NOTE),
            Section("Bytes of a core (level cost)", _bytes(chosen, hw), _BYTES_NOTE),
            Section("Filled until a vector was lost (level bulk)", fills, _FILL_NOTE),
            Section("The same on the fabric", fabric, _FABRIC_NOTE),
        ),
        statements=statements(capacities, fills, hw),
        figures=capacities.assign(
            unit=["ratio" if "/" in what else "tokens" for what in capacities["what"]]
        ),
        draw=lambda figure: _draw(figure, capacities),
        plot_inches=(8, 4.5),
    )


def _fills(chosen: Settings, progress: Progress) -> pd.DataFrame:
    rows = []
    for height, slots in chosen.fills:
        every = height * slots <= chosen.watched_vectors
        for policy in POLICIES:
            progress(f"filling {height} rows of {slots} slots by {policy}")
            done = fill(policy, height, slots, every=every)
            rows.append({"rows": height, "slots": slots, "policy": policy, "tokens": done.vectors,
                         "spread": done.spread, "hops": done.hops,
                         "in order": done.in_order})  # fmt: skip
    return pd.DataFrame(rows).astype({"hops": "Int64"})


def _fabric(chosen: Settings, hw: HardwareSpec, progress: Progress) -> pd.DataFrame:
    rows = []
    for height, width, slots in chosen.fabric_fills:
        for policy in POLICIES:
            progress(f"filling {height}x{width} PEs of {slots} slots by {policy} on the fabric")
            done = fill_fabric(policy, hw.replace(mesh=(height, width)), slots)
            rows.append({"mesh": f"{height}x{width}", "slots": slots, "policy": policy,
                         "tokens": done.vectors, "spread": done.spread, "hops": done.hops,
                         "in order": done.in_order, "fabric_cycles": done.fabric_cycles,
                         "cost_cycles": done.cost_cycles})  # fmt: skip
    return pd.DataFrame(rows)


def _ratio_rows(chosen: Settings, fills: pd.DataFrame) -> list[dict]:
    rows = []
    for model, side, concat, shift in chosen.models:
        own = _filled(fills, side, concat)
        rows.append(experiment_rows.row(
            model=model, what="shift / concat", how="a run", paper=shift // concat,
            ours=own["shift"] / own["concat"], level="bulk", bar=chosen.ratio_bar,
        ))  # fmt: skip
    return rows


def _capacity_rows(chosen: Settings, hw: HardwareSpec, fills: pd.DataFrame) -> list[dict]:
    rows = []
    for model, _, concat, shift in chosen.models:
        published = {"concat": concat, "shift": shift}
        for how, (ours, level, bar) in _readings(chosen, hw, model, fills).items():
            rows += [experiment_rows.row(
                model=model, what=policy, how=how, paper=published[policy], ours=ours[policy],
                level=level, bar=bar,
            ) for policy in POLICIES]  # fmt: skip
    return rows


def _readings(chosen: Settings, hw: HardwareSpec, model: str, fills: pd.DataFrame) -> dict:
    """Name of a reading to capacities by policy, their level, and the bar if they have one."""
    regions = {name: (Region(model_config(name), side), shift / side)
               for name, side, _, shift in chosen.models}  # fmt: skip
    region, own = regions[model]
    (other,) = (pair for name, pair in regions.items() if name != model)
    kept = {
        "bytes kept as the other model's": other[0].reserved_bytes(hw, other[1]),
        "bytes kept as its own (exact)": region.reserved_bytes(hw, own),
        "bytes kept for the smallest kernel": hw.reserved_bytes,
        "bytes kept for decode's code alone": kv_balance.DECODE_CODE_BYTES,
    }
    slots = region.placed_slots(hw, region.layers)
    concat = next(c for name, _, c, _ in chosen.models if name == model)
    readings = {
        "a run, slots of the paper": (_filled(fills, region.side, concat), "bulk", None),
        "tiles of this package": (
            {"concat": slots, "shift": region.side * slots}, "cost", chosen.capacity_bar
        ),
    }  # fmt: skip
    for how, reserved in kept.items():
        bar = chosen.capacity_bar if "other" in how else None
        ours = kv_balance.capacities(region.side, region.tokens_per_row(hw, reserved))
        readings[how] = (ours, "cost", bar)
    return readings


def _filled(fills: pd.DataFrame, rows: int, slots: int) -> dict[str, int]:
    own = fills.query("rows == @rows and slots == @slots")
    return dict(zip(own["policy"], own["tokens"], strict=True))


def _bytes(chosen: Settings, hw: HardwareSpec) -> pd.DataFrame:
    rows = []
    for model, side, _, shift in chosen.models:
        region = Region(model_config(model), side)
        at = hw.replace(mesh=(side, side))
        layout = LayerLayout(region.config, at.mesh)
        rows.append({
            "model": model,
            "side": side,
            "tokens per row": shift / side,
            "layers": region.layers,
            "weights of a layer_bytes": region.weights_bytes,
            "KV of a token_bytes": region.kv_bytes,
            "left_bytes": region.reserved_bytes(hw, shift / side),
            "one layer, ours_tokens": kv_capacity(layout, at, "float16"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _draw(figure: "Figure", capacities: pd.DataFrame) -> None:
    rows = capacities.query("what != 'shift / concat'")
    panels = figure.subplots(1, len(set(rows["model"])), sharey=True)
    for axes, (model, own) in zip(panels, rows.groupby("model", sort=False), strict=True):
        hows = list(dict.fromkeys(own["how"]))
        for policy, color, offset in (("concat", "#e08a2e", -0.2), ("shift", "#3b6fb6", 0.2)):
            of = own.query("what == @policy")
            places = [n + offset for n in range(len(hows) + 1)]
            bars = [of["paper"].iloc[0], *of["ours"]]
            axes.barh(places, bars, height=0.4, color=color, label=policy)
        axes.set_yticks(range(len(hows) + 1), ["the paper", *hows], fontsize=9)
        axes.set_xscale("log")
        axes.set_xlim(left=1)
        axes.set_title(model, fontsize=10)
        axes.set_xlabel("tokens")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Tokens that a KV cache takes", fontsize=11)
