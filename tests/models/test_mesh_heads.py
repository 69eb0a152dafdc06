"""RMSNorm of single heads, cut over the columns of their groups, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_families import FAMILIES
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_heads import head_norm
from wafer_jax.models.mesh_layout import PAD, LayerLayout
from wafer_jax.models.mesh_tiles import cut


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (2, 7), (3, 40)])
def test_every_head_is_normalised_by_itself(mesh, kv_heads):
    """Several heads in a column, padded pairs, idle columns; every row has tokens of its own."""
    config = read_config({**FAMILIES["qwen3"], "num_key_value_heads": kv_heads})
    layout = LayerLayout(config, mesh)
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((mesh[0], 6, 10))
    weight = rng.standard_normal(10)
    mean_square = (queries**2).mean(axis=-1, keepdims=True)
    expected = queries / np.sqrt(mean_square + config.rms_norm_eps) * weight

    index = layout.q_index  # [heads, G, 2, p, X]
    tile = lambda q: np.stack(
        [cut(row.reshape(-1).astype(np.float32), index) for row in q], axis=-2
    )
    norm = cut(weight.astype(np.float32), layout.head_index)
    found = np.asarray(head_norm(jnp.asarray(tile(queries)), jnp.asarray(norm), layout, 2))
    np.testing.assert_allclose(found, tile(expected), rtol=1e-5, atol=1e-6)
    assert not found[np.broadcast_to((index == PAD)[..., None, :], found.shape)].any()
