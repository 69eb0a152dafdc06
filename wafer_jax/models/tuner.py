"""Choose region, K-tree and layers per region of a model, offline and from closed forms alone.

Time over the side of a region is ragged: tiles that do not divide are padded. So sides are sorted
into classes of about one size, in each of them those are tried whose products take least, then more
of the best class; last the K-tree's phases and the layers per region are varied in the best ones.
"""

import math
from typing import get_args

from wafer_jax.arguments import shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.config import DecoderConfig, check_decoder
from wafer_jax.models.program_image import image_bytes
from wafer_jax.models.storage import storage_of
from wafer_jax.models.tuning import Candidate, Shape, Tuning
from wafer_jax.models.tuning_task import Phase, Task

MAX_K = 6
_SIZE_RATIO = 1.1
_PER_SIZE = 2
_GRIDS = ((1, 1), (2, 2), (4, 4), (8, 8), (8, 16), (16, 16))


def autotune(
    config: DecoderConfig,
    hw: HardwareSpec,
    *,
    phase: Phase = "both",
    prompt: int = 1024,
    output: int = 128,
    context: int | None = None,
    dtype: str = "float16",
    wafers: int | None = None,
    program_bytes: int | None = None,
    resident_routes: bool = False,
) -> Tuning:
    """Find the square region, the K-tree and the layers per region with the least predicted time.

    Of a mixture of experts also the parts of the region that experts are laid on.

    Both phases run on the same region, as `Model.generate` has it. A candidate must fit the SRAM,
    the colours and the input queues.

    Args:
      config: The model.
      hw: Machine; its mesh is not looked at.
      phase: What counts: the prompt ("prefill"), every token of the output ("decode"), or a request
        ("both"), whose first token is the prefill's.
      prompt: Tokens of the prompt.
      output: Tokens to generate.
      context: Tokens that the KV caches must hold; prompt and output by default.
      dtype: What weights are stored in, a name of `storage.STORAGES`.
      wafers: No more than so many wafers.
      program_bytes: SRAM that the program takes on the PEs of layers; `image_bytes` by default.
      resident_routes: Whether all routes of a phase stay installed. Otherwise the operators, which
        run one after another, take each other's colours; that is counted as free.

    Returns:
      The choice, all candidates with why they were refused, and an explanation.

    Raises:
      WaferError: Bad arguments, more tokens than the model was made for, or no region that fits.
    """
    check_decoder(config)
    _check_counts(phase, prompt, output, wafers)
    context = prompt + output if context is None else context
    _check_context(config, prompt, output, context)
    storage_of(dtype)
    program_bytes = image_bytes(hw) if program_bytes is None else program_bytes
    if not 0 <= whole(program_bytes, "program_bytes") < hw.sram_bytes:
        raise WaferError(
            f"program_bytes={shown(program_bytes)}: {hw.name} has {hw.sram_bytes:,} bytes per PE"
        )
    task = Task(
        config=config,
        hw=hw.replace(mesh=(1, 1)),
        program_bytes=max(hw.reserved_bytes, program_bytes),
        phase=phase,
        prompt=prompt,
        output=output,
        context=context,
        dtype=dtype,
        wafers=wafers,
        resident_routes=resident_routes,
    )
    best = _search(task)
    order = sorted(task.tried.values(), key=lambda c: (c.seconds, c.side, c.layers_per_region, c.k))
    return Tuning(
        config=config,
        hw=hw.replace(mesh=best.shape.mesh),
        phase=phase,
        dtype=dtype,
        context=context,
        prompt=prompt,
        output=output,
        program_bytes=task.program_bytes,
        resident_routes=resident_routes,
        best=best,
        candidates=tuple(order),
    )


def _check_counts(phase: str, prompt: int, output: int, wafers: int | None) -> None:
    if phase not in get_args(Phase):
        raise WaferError(f"phase={shown(phase)}: choose one of {', '.join(get_args(Phase))}")
    most = 1 if wafers is None else wafers
    for name, value in (("prompt", prompt), ("output", output), ("wafers", most)):
        if type(value) is not int or value < 1:
            raise WaferError(f"{name}={shown(value)}: choose a whole number, at least 1")


def _check_context(config: DecoderConfig, prompt: int, output: int, context: int) -> None:
    if type(context) is not int or context < prompt + output:
        raise WaferError(
            f"context={shown(context)}: {prompt:,} tokens of the prompt and {output:,} of the "
            f"output need {prompt + output:,}"
        )
    if context > config.max_position_embeddings:
        raise WaferError(
            f"the model has a context of {config.max_position_embeddings:,} tokens, not {context:,}"
        )


def _search(task: Task) -> Candidate:
    largest = min(task.hw.device_mesh)
    sides = range(1, largest + 1)
    shapes = {grid: _fitting(task, sides, grid) for grid in _expert_grids(task.config)}
    if not any(shapes.values()):
        refused = task.try_out(Shape(largest), 2, 1)
        raise WaferError(
            f"no square region of {task.hw.name} holds a layer in {task.dtype} with a context of "
            f"{task.context:,} tokens and a prompt of {task.prompt:,}; {refused.name}: "
            f"{refused.refused}"
        )
    least = min(shape.side for of_grid in shapes.values() for shape in of_grid)
    if least > 1:
        task.try_out(Shape(least - 1), 2, 1)  # for the table: why not smaller
    classes = [alike for of_grid in shapes.values() for alike in _by_size(task, of_grid)]
    first_of_all = [shape for alike in classes for shape in alike[:_PER_SIZE]]
    k = next((k for k in (2, 1) if _try_all(task, first_of_all, k)), 2)
    best = _best(task)
    near = next(alike for alike in classes if best.shape in alike)
    _try_all(task, near[: 3 * _PER_SIZE], k)
    for shape in _fastest_shapes(task)[:_PER_SIZE]:
        for phases in range(1, MAX_K + 1):
            task.try_out(shape, phases)
    _vary_layers(task)
    return _best(task)


def _expert_grids(config: DecoderConfig) -> list[tuple[int, int]]:
    """Those that have at least an expert in every part."""
    experts = config.experts.count if config.experts else 1
    return [grid for grid in _GRIDS if math.prod(grid) <= experts]


def _fitting(task: Task, sides: range, grid: tuple[int, int]) -> list[Shape]:
    shapes = (Shape(side, grid) for side in sides if side >= max(grid))
    return [shape for shape in shapes if task.fits(shape, 1)]


def _by_size(task: Task, shapes: list[Shape]) -> list[list[Shape]]:
    """Shapes of about one size together, those that fit the wafers and compute least first."""
    promise = lambda shape: (task.over_wafers(shape), task.estimate(shape))
    classes: dict[int, list[Shape]] = {}
    for shape in shapes:
        classes.setdefault(int(math.log(shape.side) / math.log(_SIZE_RATIO)), []).append(shape)
    return [sorted(alike, key=promise) for alike in classes.values()]


def _try_all(task: Task, shapes: list[Shape], k: int) -> bool:
    """Whether any of them fits."""
    tried = [task.try_out(shape, k) for shape in shapes]
    return not all(candidate.refused for candidate in tried)


def _fastest_shapes(task: Task) -> list[Shape]:
    ordered = sorted(task.tried.values(), key=lambda c: c.seconds)
    return list(dict.fromkeys(c.shape for c in ordered if not c.refused))


def _vary_layers(task: Task) -> None:
    """Other numbers of layers in the best region, and the first that is too many."""
    best, layers = _best(task), task.config.num_layers
    most = task.most_layers(best.shape)
    for fewer in {1, (most + 1) // 2}:
        task.try_out(best.shape, best.k, fewer)
    if most < layers:
        task.try_out(best.shape, best.k, -(-layers // (-(-layers // most) - 1)))


def _best(task: Task) -> Candidate:
    best = min(task.tried.values(), key=lambda c: (c.seconds, c.wafers, c.pes))
    if not best.refused:
        return best
    # What SRAM refuses was tried to show it; the others say what is in the way.
    closest = min(task.tried.values(), key=lambda c: (c.wafers or math.inf, c.colors, c.k))
    raise WaferError(
        f"nothing that was tried fits {task.hw.name}; {closest.name} is refused, {closest.refused}"
    )
