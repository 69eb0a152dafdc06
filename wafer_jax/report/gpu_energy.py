"""Energy of GPUs over that of a wafer, as WaferLLM's tables 6 to 8 count it.

The paper says only that a WSE-2 takes 37 times the power of an A100. Its ratios of energy follow
from its speeds with one power per device, 15 kW (the preset's) against 400 W per GPU, whatever the
device does meanwhile. That is inference.
"""

from wafer_jax.hardware import HardwareSpec


def energy_ratio(speedup: float, gpus: int, hw: HardwareSpec, gpu_watts: float) -> float:
    """Joules of ``gpus`` GPUs over joules of the wafer for the same work.

    Args:
      speedup: Time of the GPUs over time of the wafer.
      gpus: Their number.
      hw: Wafer; its power is the preset's.
      gpu_watts: Power of one GPU.
    """
    return speedup * gpus * gpu_watts / hw.power_watts


def gpu_name(gpus: int) -> str:
    """As the paper writes it: 16 are two machines of eight."""
    return f"A100 x{gpus}" if gpus <= 8 else f"A100 {gpus // 8}x8"
