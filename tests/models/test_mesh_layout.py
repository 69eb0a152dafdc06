"""How weights lie on the mesh, and that a product there is MeshGEMV, bit for bit."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_llama import TINY, random_weights
from wafer_jax.collectives import gemv
from wafer_jax.models.config import DecoderConfig, RopeConfig, YarnScaling
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_decode import hand_over
from wafer_jax.models.mesh_layout import PAD, LayerLayout, VocabLayout, blocks
from wafer_jax.models.mesh_products import matvec, rms_norm
from wafer_jax.models.mesh_weights import lay_out

MESHES = [(1, 1), (2, 3), (3, 2), (4, 5), (1, 40), (7, 1)]


def config(**changes) -> DecoderConfig:
    return read_config({**TINY, **changes})


@pytest.mark.parametrize("rotary_dim", [None, 2, 6])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("mesh", MESHES)
def test_every_row_of_the_projections_has_one_place(mesh, kv_heads, rotary_dim):
    layout = LayerLayout(partial_rope(rotary_dim, num_key_value_heads=kv_heads), mesh)
    for index, size in ((layout.q_columns, 60), (layout.kv_columns, 10 * kv_heads)):
        assert index.shape[0] == mesh[1]
        np.testing.assert_array_equal(np.sort(index[index != PAD]), np.arange(size))


def partial_rope(rotary_dim: int | None, **changes) -> DecoderConfig:
    c = config(**changes)
    return replace(c, rope=replace(c.rope, rotary_dim=rotary_dim))


@pytest.mark.parametrize("rotary_dim", [2, 4, 8, 10])
@pytest.mark.parametrize("mesh", MESHES)
def test_attention_is_local_to_a_column(mesh, rotary_dim):
    """A column has both elements of a pair, and for each of its keys all queries that meet it."""
    c = partial_rope(rotary_dim, num_key_value_heads=2)
    layout = LayerLayout(c, mesh)
    for keys, queries in zip(layout.kv_columns, layout.q_columns, strict=True):
        for key in keys[keys != PAD]:
            head, element = divmod(int(key), c.head_dim)
            if element < rotary_dim:
                partner = (element + rotary_dim // 2) % rotary_dim
                assert head * c.head_dim + partner in keys
            for query in range(3 * head, 3 * head + 3):
                assert query * c.head_dim + element in queries


@pytest.mark.parametrize("mesh", MESHES)
def test_rope_over_the_whole_head_is_the_layout_without_a_width(mesh):
    whole, without = (LayerLayout(partial_rope(r), mesh) for r in (10, None))
    for name in ("head_index", "kv_index", "q_index", "inverse_frequencies", "magnitudes"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(without, name))


def test_elements_that_pass_through_turn_by_no_angle():
    c = replace(config(), rope=RopeConfig(500.0, YarnScaling(4.0, 32.0, 1.0, 16, 1.3), 6))
    layout = LayerLayout(c, (1, 4))  # two groups of two columns, three pairs in each
    first, second = layout.head_index[..., :2]  # [p, c]
    np.testing.assert_array_equal(first.T, [[0, 1, 2], [6, 7, PAD]])
    np.testing.assert_array_equal(second.T, [[3, 4, 5], [8, 9, PAD]])
    expected = c.rope.inverse_frequencies(10)
    assert len(expected) == 3
    np.testing.assert_array_equal(layout.inverse_frequencies.T[:2], [expected, [0, 0, 0]])
    np.testing.assert_array_equal(layout.magnitudes.T[:2], [[1.3] * 3, [1.0] * 3])


def test_groups_of_columns_hold_whole_heads():
    layout = LayerLayout(config(), (4, 11))  # two heads, five pairs each
    assert (layout.groups, layout.columns, layout.pairs, layout.heads) == (2, 5, 1, 1)
    assert (layout.kv_columns[:5] // 10 == 0).all()
    assert (layout.kv_columns[5:10] // 10 == 1).all()
    assert (layout.kv_columns[10] == PAD).all()


def test_blocks_are_equal_parts_with_padding_at_the_end():
    np.testing.assert_array_equal(blocks(5, 3), [[0, 1], [2, 3], [4, PAD]])
    np.testing.assert_array_equal(blocks(2, 3), [[0], [1], [PAD]])


def matrix_of(tiles: np.ndarray, mesh: tuple[int, int], along: str) -> np.ndarray:
    """[r, R, C * c] as the tiles [r, c, Y, X] that `gemv.apply` takes."""
    rows, parts, _ = tiles.shape
    blocked = tiles.reshape(rows, parts, mesh[1] if along == "y" else mesh[0], -1)
    return blocked.transpose(0, 3, 1, 2) if along == "y" else blocked.transpose(0, 3, 2, 1)


@pytest.mark.parametrize(
    ("mesh", "kind"), [((2, 3), "qkv"), ((5, 4), "out"), ((6, 1), "gate_up"), ((2, 3), "down")]
)
def test_products_are_those_of_meshgemv(mesh, kind):
    layout = LayerLayout(config(), mesh)
    vocab = VocabLayout(layout.config, mesh)
    weights = lay_out(random_weights(layout.config), layout, vocab, vocab)
    (layers,) = weights.layers
    stack = {**layers.attention, **layers.feed_forward}[kind]
    along = "y" if kind in ("qkv", "gate_up") else "x"
    x = np.random.default_rng(0).standard_normal(stack.shape[1:3]).astype(np.float32)  # [r, R]
    found = matvec(jnp.asarray(x.T), stack, jnp.int32(1))
    spread = x[:, :, None] if along == "y" else x[:, None, :]
    tiles = matrix_of(np.asarray(stack[1]), mesh, along)
    expected = gemv.apply(
        jnp.broadcast_to(jnp.asarray(spread), (len(x), *mesh)), jnp.asarray(tiles), axis=along
    )
    line = expected[:, 0, :] if along == "y" else expected[:, :, 0]  # replicated along the axis
    np.testing.assert_array_equal(found, line.T.reshape(-1))


def test_laid_out_weights_are_the_checkpoints():
    c = config(attention_bias=True)
    weights = random_weights(c)
    layout, vocab = LayerLayout(c, (5, 4)), VocabLayout(c, (3, 7))
    tiles = lay_out(weights, layout, vocab, vocab)
    x = np.zeros(5 * layout.hidden_y, np.float32)
    x[:48] = np.random.default_rng(0).standard_normal(48)
    (layers,) = tiles.layers
    found = np.asarray(
        matvec(jnp.asarray(x.reshape(5, -1)), layers.feed_forward["gate_up"], jnp.int32(2))
    )
    gate = found.reshape(4, 2, -1)[:, 0].reshape(-1)[:80]
    expected = weights["model.layers.2.mlp.gate_proj.weight"] @ x[:48]
    np.testing.assert_allclose(gate, expected, rtol=1e-4, atol=1e-5)
    assert tiles.head is not None
    assert tiles.head.shape == tiles.embedding.shape == (1, 16, 3, 7 * 14)
    assert float(jnp.sum(layers.attention["qkv_bias"][0])) == pytest.approx(
        sum(weights[f"model.layers.0.self_attn.{n}_proj.bias"].sum() for n in "qkv"), abs=1e-4
    )


def test_norms_do_not_count_the_padding():
    x = np.random.default_rng(0).standard_normal(11).astype(np.float32)
    tiles = jnp.asarray(np.pad(x, (0, 1)).reshape(4, 3))
    found = rms_norm(tiles, jnp.ones((4, 3)), 11, 1e-5)
    expected = x / np.sqrt((x**2).mean() + 1e-5)
    np.testing.assert_allclose(found.reshape(-1)[:11], expected, rtol=1e-6)
    assert found[-1, -1] == 0


def test_handing_over_cuts_a_vector_anew():
    x = jnp.arange(12.0).reshape(4, 3)  # eleven elements and one of padding
    found = hand_over(x, 11, 3)
    np.testing.assert_array_equal(found.reshape(-1), [*range(11), 0])
    assert hand_over(x, 11, 4) is x
