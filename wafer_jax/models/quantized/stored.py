"""The parameters of a folder of safetensors, whether stored plainly, in FP8 or in MXFP4.

A quantised parameter lies in two tensors: its codes and their scales. Here they become one again,
with the shape that the model wants, so that nothing else need know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models.quantized import fp8, mxfp4
from wafer_jax.models.quantized.packed import PackedSource, from_fp8, from_mxfp4
from wafer_jax.models.safetensors_file import SafetensorsFile
from wafer_jax.models.weights import check_finite

_MAX_BLOCK = 1 << 20
_METHODS = "'fp8' (block scales) and 'mxfp4'"

# Which modules were left alone is seen in the file; activations are computed in float32 here.
_IGNORED = frozenset("modules_to_not_convert ignored_layers modules_to_convert dequantize".split())
_FP8_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_scheme": ("dynamic",),
    "fmt": ("e4m3", "float8_e4m3fn"),
    "scale_fmt": ("float", "ue8m0"),
    "expert_dtype": ("fp8",),
}


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint stores its quantised parameters.

    Attributes:
        method: "fp8" or "mxfp4".
        block: rows and columns that share a scale (FP8).
    """

    method: str
    block: tuple[int, int] = fp8.BLOCK


@dataclass(frozen=True)
class Parameter:
    """One parameter, not read yet.

    Attributes:
        path: the file that holds it.
        shape: as the model wants it.
        read: gives its values, float32.
        packed: where it can be had packed, or None; of MXFP4 the outputs of all experts are rows.
    """

    path: Path
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]
    packed: PackedSource | None = None


def read_quantization(config: Any, *, where: str) -> Quantization | None:
    """Read ``quantization_config``.

    Args:
        config: the parsed ``config.json``.
        where: what to call it in an error.

    Returns:
        None where it is absent.

    Raises:
        WaferError: a method or attribute that is not supported; the line names it.
    """
    given = config.get("quantization_config") if isinstance(config, Mapping) else None
    if given is None:
        return None
    where = f"{where}: quantization_config"
    if not isinstance(given, Mapping):
        raise WaferError(f"{where} must be an object, not {_show(given)}")
    method = given.get("quant_method")
    if method not in ("fp8", "mxfp4"):
        raise WaferError(
            f"{where}: quant_method {_show(method)} is not supported, only {_METHODS}: "
            "take the unquantised checkpoint, or a GGUF file"
        )
    checked = dict(_FP8_ONLY) if method == "fp8" else {}
    for name, value in given.items():
        if name in ("quant_method", *_IGNORED) or (name, method) == ("weight_block_size", "fp8"):
            continue
        if name not in checked:
            raise WaferError(f"{where}: unknown attribute {_show(name)}={_show(value)}")
        if value not in checked[name]:
            allowed = " or ".join(map(repr, checked[name]))
            raise WaferError(f"{where}: {name}={_show(value)} is unsupported (must be {allowed})")
    if method == "mxfp4":
        return Quantization(method)
    block = given.get("weight_block_size")
    if not isinstance(block, list | tuple) or len(block) != 2:
        raise WaferError(f"{where}: weight_block_size={_show(block)} must be two sizes, [128, 128]")
    if not all(type(size) is int and 1 <= size <= _MAX_BLOCK for size in block):
        raise WaferError(f"{where}: weight_block_size={_show(block)} is outside 1..{_MAX_BLOCK}")
    return Quantization(method, (block[0], block[1]))


def parameters(
    homes: Mapping[str, SafetensorsFile], quantization: Quantization | None
) -> dict[str, Parameter]:
    """Join codes and scales.

    Args:
        homes: the file of every tensor.
        quantization: what ``read_quantization`` returned.

    Returns:
        Every parameter by its name. MXFP4 experts have the order of axes of the unquantised
        checkpoint, ``[E, in, out]``, as transformers loads them.

    Raises:
        WaferError: codes without scales or scales without codes, of a wrong type or shape.
    """
    if quantization is None:
        return {name: _plain(name, file) for name, file in homes.items()}
    join = _fp8 if quantization.method == "fp8" else _mxfp4
    found: dict[str, Parameter] = {}
    for name, file in homes.items():
        if (joined := join(name, homes, quantization)) is None:
            continue
        target, parameter = joined
        if target in found:
            raise WaferError(f"{file.path}: parameter {target!r} is also in {found[target].path}")
        found[target] = parameter
    return found


def _plain(name: str, file: SafetensorsFile) -> Parameter:
    return Parameter(file.path, file.tensors[name].shape, lambda: file.read(name))


def _fp8(
    name: str, homes: Mapping[str, SafetensorsFile], quantization: Quantization
) -> tuple[str, Parameter] | None:
    """What a tensor contributes; scales contribute with their codes."""
    file, block = homes[name], quantization.block
    if name.endswith("_scale_inv"):
        codes = name.removesuffix("_scale_inv")
        if codes not in homes or homes[codes].tensors[codes].dtype != "F8_E4M3":
            raise WaferError(f"{file.path}: tensor {name!r} has no codes {codes!r} in F8_E4M3")
        return None
    info = file.tensors[name]
    if info.dtype != "F8_E4M3":
        return name, _plain(name, file)
    scales = f"{name}_scale_inv"
    if scales not in homes:
        raise WaferError(f"{file.path}: tensor {name!r} is in FP8 but {scales!r} is missing")
    home = homes[scales]
    wanted = fp8.scale_shape(info.shape, block) if len(info.shape) >= 2 else None
    if home.tensors[scales].shape != wanted:
        raise WaferError(
            f"{home.path}: tensor {scales!r} has shape {list(home.tensors[scales].shape)}, codes "
            f"of shape {list(info.shape)} in blocks of {block[0]}x{block[1]} need "
            f"{None if wanted is None else list(wanted)}"
        )

    def read() -> np.ndarray:
        scale = home.read(scales)
        with np.errstate(over="ignore", invalid="ignore"):  # check_finite reports either
            values = fp8.dequantise(file.read_stored(name), scale, block)
        check_finite(name, values, where=str(file.path))
        return values

    codes = lambda: from_fp8(file.read_stored(name), home.read(scales), block)
    packed = PackedSource("fp8", codes) if block == fp8.BLOCK and len(info.shape) == 2 else None
    return name, Parameter(file.path, info.shape, read, packed)


def _mxfp4(
    name: str, homes: Mapping[str, SafetensorsFile], quantization: Quantization
) -> tuple[str, Parameter] | None:
    """What a tensor contributes; scales contribute with their blocks."""
    file = homes[name]
    stem, _, kind = name.rpartition("_")
    if kind not in ("blocks", "scales"):
        return name, _plain(name, file)
    blocks, scales = f"{stem}_blocks", f"{stem}_scales"
    for other in (blocks, scales):
        if other not in homes:
            raise WaferError(f"{file.path}: tensor {name!r} has no {other!r} beside it")
        if (dtype := homes[other].tensors[other].dtype) != "U8":
            raise WaferError(f"{homes[other].path}: tensor {other!r} is {dtype!r}, MXFP4 is 'U8'")
    if kind == "scales":
        return None
    shape, groups = file.tensors[blocks].shape, homes[scales].tensors[scales].shape
    if len(shape) != 4 or shape[-1] != mxfp4.GROUP // 2 or shape[:-1] != groups:
        raise WaferError(
            f"{file.path}: tensor {blocks!r} has shape {list(shape)} and {scales!r} has "
            f"{list(groups)}: MXFP4 needs [E, out, G, 16] and [E, out, G]"
        )

    def read() -> np.ndarray:
        exponents = homes[scales].read_stored(scales)
        if (exponents == mxfp4.NAN_SCALE).any():
            raise WaferError(
                f"{homes[scales].path}: tensor {scales} has NaN (255) among its scales"
            )
        values = mxfp4.dequantise(file.read_stored(blocks), exponents)
        check_finite(blocks, values, where=str(file.path))
        return np.ascontiguousarray(values.swapaxes(1, 2))

    codes = lambda: from_mxfp4(file.read_stored(name), homes[scales].read_stored(scales))
    wanted = (shape[0], shape[2] * mxfp4.GROUP, shape[1])
    return stem, Parameter(file.path, wanted, read, PackedSource("mxfp4", codes))


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a very long integer"
    return text if len(text) <= 80 else text[:77] + "..."
