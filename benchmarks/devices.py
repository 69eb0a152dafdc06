"""One wafer on one device and cut over four CPU devices that share this machine's cores: overhead.

python benchmarks/devices.py [SIDE] [REPEATS]
"""

import sys

import jax

jax.config.update("jax_num_cpu_devices", 4)

import numpy as np  # noqa: E402  the devices must be there before anything uses JAX

import wafer_jax as wj  # noqa: E402

CUTS = (None, 2, 4, (2, 2))


def main(side: int = 256, repeats: int = 5) -> None:
    """Print a row per setting of ``values``: milliseconds per cycle of the fastest run, by cut."""
    program = wj.allreduce.ktree(wj.hardware("wse2", mesh=(side, side)), words=64, k=2, axis="y")
    tiles = np.random.default_rng(0).integers(0, 9, (64, side, side)).astype(np.float32)
    for values in ("none", "full"):
        seconds: dict = {cut: [] for cut in CUTS}
        for _ in range(repeats):
            for cut, found in seconds.items():
                result = wj.run(program, tiles, values=values, devices=cut)
                found.append(result.run_s / result.cycles)
        row = " | ".join(f"{1e3 * min(found):.2f}" for found in seconds.values())
        print(f"| {side}x{side} | {values} | {row} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
