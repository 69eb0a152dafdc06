"""Settings that every test shares: strict promotion, warnings as errors, a compile cache."""

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 4)  # for tests/fabric/test_devices.py
