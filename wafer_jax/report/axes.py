"""Axes of pictures of a mesh."""


def label_mesh(ax) -> None:
    """Name the axes of a mesh, with whole numbers of rows and columns."""
    ax.set(xlabel="x (east)", ylabel="y (south)")
    whole_numbers(ax.xaxis)
    whole_numbers(ax.yaxis)


def whole_numbers(axis) -> None:
    """Put ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
