"""One wafer over the devices of several processes: start this once per process, on any hosts.

    python docs/cluster.py HOST:PORT PROCESSES NUMBER [PLATFORM]

HOST:PORT is any free port of the host that runs number 0.
"""

import sys

import jax

coordinator, processes, number, *platform = sys.argv[1:]
if platform:
    jax.config.update("jax_platforms", platform[0])
jax.distributed.initialize(coordinator, int(processes), int(number))

import wafer_jax as wj  # noqa: E402  JAX must know of the other processes first

hw = wj.hardware("wse2", mesh=(24, 24))
program = wj.allreduce.ktree(hw, words=16, k=2, axis="y")
result = wj.run(program, values="none", devices=jax.device_count())
if jax.process_index() == 0:
    print(f"{jax.device_count()} devices of {jax.process_count()} processes: {result}")
