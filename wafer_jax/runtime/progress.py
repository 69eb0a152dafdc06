"""How far a run is, in words."""


def progress_text(cycle: int, rate: float, num_pes: int, min_cycles: int) -> str:
    """One line, such as "cycle 1,200, 3.1 M PE-cycles/s, at least 2 min left at this rate".

    Args:
      cycle: Cycles executed.
      rate: PE-cycles per second.
      num_pes: PEs of the mesh.
      min_cycles: Cycles that the program takes at least (`wafer_jax.estimate`). Nothing is said of
        the time left once they have passed, or if they are unknown (0).
    """
    text = f"cycle {cycle:,}, {rate / 1e6:.1f} M PE-cycles/s"
    if cycle < min_cycles and rate > 0:
        text += f", at least {duration((min_cycles - cycle) * num_pes / rate)} left at this rate"
    return text


def duration(seconds: float) -> str:
    """Seconds for people: "45 s", "12 min", "3 h 20 min"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
