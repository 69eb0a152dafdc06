"""Draw the picture of the README: `make pictures`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import wafer_jax as wj

OUT = Path(__file__).parent / "images" / "links.png"


def main() -> None:
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
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, dpi=110)
    print(f"written to {OUT}")


if __name__ == "__main__":
    main()
