"""A machine's capacities as a table, each with its unit and its source."""

from dataclasses import fields

import pandas as pd

from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import PLMR, plmr

_UNITS = {
    "mesh": "PEs, rows x columns",
    "device_mesh": "PEs, rows x columns",
    "clock_hz": "Hz",
    "colors": "per PE",
    "address_bits": "bits",
    "router_depth": "words per colour",
    "input_queue_depths": "words, one per queue",
    "output_queue_depths": "words, one per queue",
    "threads": "per PE",
    "sram_bytes": "bytes per PE",
    "reserved_bytes": "bytes per PE",
    "simd_bytes": "bytes per group",
    "vector_group_cycles": "cycles per group",
    "fma32_cycles": "cycles per element",
    "copy_bytes_per_cycle": "bytes/cycle",
    "bank_conflict_factor": "times",
    "host_link_bytes_per_s": "bytes/s",
    "power_watts": "W",
}


def capacities(hw: HardwareSpec) -> pd.DataFrame:
    """List what a machine has.

    Args:
      hw: The machine.

    Returns:
      One row per figure with the columns key, value (a number or a tuple), unit and source;
      figures that follow from the others come last, their source says how.
    """
    sources = dict(hw.sources)
    rows = [
        (f.name, getattr(hw, f.name), _unit(f.name), sources.get(f.name, ""))
        for f in fields(hw)
        if f.name not in ("name", "sources", "mesh")
    ]
    device_pes = hw.device_mesh[0] * hw.device_mesh[1]
    rows += [
        ("device_pes", device_pes, "PEs", "rows times columns"),
        ("data_bytes", hw.data_bytes, "bytes per PE", "sram_bytes less reserved_bytes"),
        ("device_sram_bytes", device_pes * hw.sram_bytes, "bytes", "sram_bytes of all PEs"),
        *_plmr_rows(plmr(hw.replace(mesh=hw.device_mesh))),
    ]
    return pd.DataFrame(rows, columns=["key", "value", "unit", "source"])


def _plmr_rows(p: PLMR) -> list[tuple]:
    """WaferLLM's device model, of the whole device."""
    return [
        ("plmr_alpha_cycles", p.alpha_cycles, "cycles", "PLMR's L: a hop in hardware"),
        ("plmr_beta_cycles", p.beta_cycles, "cycles", "PLMR's L: a software stage, 2 T_R + 1"),
        ("plmr_worst_access_cycles", p.worst_access_cycles(), "cycles", "alpha (Y + X), no stage"),
        ("plmr_remote_gap", p.remote_gap, "", "PLMR's L: the worst access to one of the own SRAM"),
        ("plmr_address_paths", p.address_paths, "per PE", "PLMR's R as the paper counts it"),
        ("plmr_routable_colors", p.routable_colors, "per PE", "PLMR's R as programs meet it"),
    ]


def _unit(key: str) -> str:
    return _UNITS.get(key, "cycles" if key.endswith("_cycles") else "")
