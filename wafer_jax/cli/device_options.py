"""``--device`` and ``--devices``: where a run happens."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.errors import WaferError

if TYPE_CHECKING:
    from wafer_jax.devices import Devices

Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cpu, gpu, cuda:1 ...: the device of the run."),
]
DeviceCount = Annotated[
    str | None,
    typer.Option(
        "--devices", metavar="N|RxC", help="Cut the wafer in N blocks along y, or in R x C."
    ),
]


def chosen_devices(device: str | None, count: str | None) -> "Devices | None":
    """The devices that the two options name, or None for JAX's choice.

    Raises:
      WaferError: Names and counts that cannot be read, or devices that are not there.
    """
    if device is None and count is None:
        return None
    platform, number = _parse_device(device)
    rows, columns = _parse_count(count)
    wanted = rows * columns
    if number is not None and wanted > 1:
        raise WaferError(f"--device {device} is one device: give --device {platform} --devices N")
    there = _devices(platform, wanted)
    first = number or 0
    if first + wanted > len(there):
        asked = f"{wanted} devices" if number is None else f"device {platform}:{number}"
        are = "is" if len(there) == 1 else "are"
        raise WaferError(f"{asked} asked for, there {are} {len(there)} ({there[0].platform})")
    if wanted == 1:
        return [there[first]]
    import numpy as np
    from jax.sharding import Mesh

    from wafer_jax.step.halo import AXES

    return Mesh(np.array(there[:wanted]).reshape(rows, columns), AXES)


def _parse_device(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"([a-z]{2,10})(?::(\d{1,4}))?", text, re.ASCII)
    if match is None:
        raise WaferError(f"--device {text[:40]!r}: expected a name such as cpu, gpu or cuda:1")
    return match[1], None if match[2] is None else int(match[2])


def _parse_count(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    match = re.fullmatch(r"(\d{1,4})(?:[xX](\d{1,4}))?", text.strip(), re.ASCII)
    shape = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
    if min(shape) < 1:
        raise WaferError(f"--devices {text[:40]!r}: expected a count such as 4, or 2x2")
    return shape


def _devices(platform: str | None, wanted: int):
    import jax

    if platform == "cpu" and wanted > 1:
        # JAX shows the CPU as several devices only if it is told so before its first use.
        jax.config.update("jax_num_cpu_devices", wanted)
    try:
        return jax.devices(platform)
    except RuntimeError:
        raise WaferError(
            f"--device {platform}: JAX finds no such device here, only "
            f"{', '.join(sorted({d.platform for d in jax.devices()}))}"
        ) from None
