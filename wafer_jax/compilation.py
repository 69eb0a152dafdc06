"""Compile once, keep it on disk, and say so when it takes long."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax

MAX_MAPPINGS = 32_000
"""A compiled step takes some hundred memory mappings of the process. Linux allows 65,530 of them
(vm.max_map_count) and XLA does not survive their end, so a long sweep must let old steps go."""

_compiled: dict = {}


def use_disk_cache() -> None:
    """Turn on XLA's persistent compile cache unless the user has set one."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        folder = Path.home() / ".cache" / "wafer_jax" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def compiled(what: str, jitted: Callable, static: tuple, *args) -> tuple[Callable, float]:
    """The executable of ``jitted(*static, *args)``, from memory, disk or the compiler.

    Args:
      what: Named in the notice that appears on stderr after a second.
      jitted: A jitted function whose leading arguments are static.
      static: Those arguments, hashable.
      args: Arrays; only shapes and dtypes matter.

    Returns:
      The executable, to be called with arrays only, and the seconds that it took to make.
    """
    use_disk_cache()
    leaves, tree = jax.tree.flatten(args)
    key = (jitted, static, tree, tuple((x.shape, x.dtype, x.weak_type, x.sharding) for x in leaves))
    if key in _compiled:
        return _compiled[key], 0.0
    _make_room()
    notice = threading.Timer(
        1.0, lambda: print(f"compiling {what} (kept on disk for next time) ...", file=sys.stderr)
    )
    notice.daemon = True
    notice.start()
    began = time.perf_counter()
    try:
        _compiled[key] = jitted.lower(*static, *args).compile()  # pyright: ignore[reportFunctionMemberAccess]
    finally:
        notice.cancel()
    return _compiled[key], time.perf_counter() - began


def _make_room() -> None:
    """Let all executables go that nobody else holds if there are too many."""
    if _mappings() > MAX_MAPPINGS:
        _compiled.clear()
        jax.clear_caches()


def _mappings() -> int:
    """Memory mappings of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0
