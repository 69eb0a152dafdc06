"""Draw the pictures of the README and of docs/experiments.md: `make pictures`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import wafer_jax as wj

IMAGES = Path(__file__).parent / "images"


def draw_links():
    """Link loads of two programs, as the emulated routers counted them."""
    tree = wj.run(
        wj.allreduce.ktree(wj.hardware("wse2", mesh=(6, 15)), words=32, k=2), values="none"
    )
    product = wj.run(
        wj.gemm.mesh(wj.hardware("wse2", mesh=(8, 8)), m=32, k=64, n=48), values="none"
    )
    figure, axes = plt.subplots(
        1, 2, figsize=(11.5, 4.3), layout="constrained", width_ratios=[15, 8.4]
    )
    tree.raise_on_fault().plot_links(axes[0])
    product.raise_on_fault().plot_links(axes[1])
    axes[0].set_title(f"K-tree allreduce along every row, k = 2: {tree.cycles} cycles", fontsize=10)
    axes[1].set_title(f"MeshGEMM, two-hop rings: {product.cycles:,} cycles", fontsize=10)
    return figure


def draw_machine():
    """Back-pressure on shared links, and a deadlock."""
    streams, stuck = wj.record(two_streams(), values="none"), wj.run(ring(), values="none")
    figure, axes = plt.subplots(
        1, 2, figsize=(12.5, 3.4), layout="constrained", width_ratios=[15, 8.4]
    )
    streams.plot_timeline(axes[0])
    wj.plot_deadlock(stuck, axes[1])
    axes[0].set_title(
        f"Two streams share the links from PE 1 to PE 4: {streams.cycles} cycles", fontsize=10
    )
    axes[1].set_title(f"Deadlock at cycle {stuck.cycles}: who waits for whom", fontsize=10)
    return figure


def two_streams() -> wj.Program:
    """Two streams of 48 words on one row."""
    b = wj.ProgramBuilder(wj.hardware("wse2", mesh=(1, 6)), "two streams")
    x = b.tile("x", (48,))
    for color, (first, last) in enumerate(((0, 5), (1, 4))):
        b.path(color, (0, first), (0, last))
        b.role(f"source {color}", at=(0, first)).thread().send(color, x)
        b.role(f"sink {color}", at=(0, last)).thread().receive(color, x)
    return b.build()


def ring() -> wj.Program:
    """Four PEs that send more than fits on the way before they receive."""
    b = wj.ProgramBuilder(wj.hardware("wse2", mesh=(5, 8)), "ring")
    x, corners = b.tile("x", (100,)), [(1, 1), (1, 5), (3, 5), (3, 1)]
    for i, pe in enumerate(corners):
        b.path(i, pe, corners[(i + 1) % 4])
        b.role(f"corner {i}", at=pe).thread().send(i, x).receive((i - 1) % 4, x)
    return b.build()


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in (("links", draw_links), ("machine", draw_machine)):
        draw().savefig(IMAGES / f"{name}.png", dpi=110)
        print(f"written to {IMAGES / name}.png")
    for name in ("waferllm-figure-9", "waferllm-figure-10", "waferllm-table-4"):
        wj.experiment(name, quick=True).plot(IMAGES / f"{name}.png")
        print(f"written to {IMAGES / name}.png")


if __name__ == "__main__":
    main()
