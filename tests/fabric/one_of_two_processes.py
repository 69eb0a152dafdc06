"""Half of `test_devices.test_two_processes`: ADDRESS NUMBER OUTPUT."""

import sys

import jax

address, number, output = sys.argv[1:]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(address, 2, int(number))

import numpy as np  # noqa: E402  JAX must know of the other process first
from random_families import FAMILIES  # noqa: E402
from test_against_oracle import runs  # noqa: E402

import wafer_jax as wj  # noqa: E402

program, tiles, _, jitter = next(runs(FAMILIES, 9, 0, 1))
result = wj.run(program, tiles, jitter=jitter, devices=(2, 2))
np.savez(output, *jax.tree.leaves(result.state))
