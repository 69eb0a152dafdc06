"""How many experts a layer has and a token uses, as families spell it."""

from wafer_jax.models.config import Experts
from wafer_jax.models.config_reader import MAX_LAYERS, ConfigReader, show

_MAX_EXPERTS = 1024


def read_experts(read: ConfigReader, num_layers: int) -> Experts:
    """Read ``num_experts`` or ``num_local_experts``, and ``num_experts_per_tok``.

    Args:
        read: the attributes; problems are added to it.
        num_layers: decoder layers.

    Returns:
        Experts chosen by softmax.
    """
    new, old = (read.config.get(name) for name in ("num_local_experts", "num_experts"))
    if None not in (new, old) and new != old:
        read.problems.append(f"num_local_experts={show(new)} and num_experts={show(old)} differ")
    name = "num_experts" if new is None else "num_local_experts"  # transformers 4 and 5
    count = read.integer(name, 1, _MAX_EXPERTS)
    if count * num_layers > 32 * MAX_LAYERS:
        read.problems.append(f"{name}={count} in {num_layers} layers are too many")
    return Experts(count=count, chosen=read.integer("num_experts_per_tok", 1, count))
