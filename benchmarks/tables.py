"""The tables of `make bench`, from the rows that the cases print as JSON."""

from rich.table import Table

MIB = 2**20


def table(title: str, columns: str, rows: list[tuple[str, ...]]) -> Table:
    """Columns separated by commas; the first is text, the others are numbers."""
    out = Table(title=title)
    for i, name in enumerate(columns.split(", ")):
        out.add_column(name, justify="right" if i else "left")
    for row in rows:
        out.add_row(*row)
    return out


def mesh(row: dict) -> str:
    """Height and width."""
    return "x".join(map(str, row["mesh"]))


def on_or_off(row: dict) -> str:
    """Whether the run had values."""
    return "on" if row["values"] else "off"


def fabric_table(rows: list[dict]) -> Table:
    """One row per fabric case."""
    return table(
        "fabric level",
        "program, mesh, values, cycles, M PE-cycles/s, compile s, control B/PE, peak MiB",
        [
            (
                r["program"], mesh(r), on_or_off(r), f"{r['cycles']:,}",
                f"{r['pe_cycles_per_s'] / 1e6:.1f}", f"{r['compile_s']:.1f}",
                f"{r['control_bytes_per_pe']:.0f}", f"{r['peak_bytes'] / MIB:,.0f}",
            )
            for r in rows
        ],
    )  # fmt: skip


def memory_table(rows: list[dict]) -> Table:
    """Of the compiled step: it needs one state, updated in place, and temporaries."""
    return table(
        "memory of the step, MiB",
        "program, mesh, values, state, updated in place, temporaries, temporaries / state",
        [
            (
                r["program"], mesh(r), on_or_off(r), f"{r['state_bytes'] / MIB:.1f}",
                f"{r['aliased_bytes'] / MIB:.1f}", f"{r['temporary_bytes'] / MIB:.1f}",
                f"{r['temporary_bytes'] / r['state_bytes']:.2f}",
            )
            for r in rows
        ],
    )  # fmt: skip


def traffic_table(rows: list[dict]) -> Table:
    """Uniform random traffic."""
    return table(
        "uniform random traffic",
        "mesh, values, flows placed of asked, mean hops of both, words/PE/cycle, "
        "link load mean and most, cycles, s, M router-cycles/s, compile s",
        [
            (
                mesh(r), on_or_off(r), f"{r['flows_placed']:,} of {r['flows_asked']:,}",
                f"{r['mean_hops_placed']:.1f} of {r['mean_hops_asked']:.1f}",
                f"{r['words_per_pe_and_cycle']:.3f}",
                f"{r['mean_link_load']:.0%}, {r['busiest_link_load']:.0%}", f"{r['cycles']:,}",
                f"{r['run_s']:.2f}", f"{r['pe_cycles_per_s'] / 1e6:.1f}", f"{r['compile_s']:.1f}",
            )
            for r in rows
        ],
    )  # fmt: skip


def replicas_table(rows: list[dict]) -> Table:
    """A batch of replicas beside one program on as many PEs."""
    return table(
        "jittered replicas beside one program, ns per PE and cycle",
        "replicas, mesh of one, values, cycles of both, replicas, one program, ratio",
        [
            (
                str(r["replicas"]), mesh(r), on_or_off(r),
                f"{r['batch_cycles']:,}, {r['whole_cycles']:,}",
                f"{1e9 * r['batch_s_per_pe_cycle']:.1f}", f"{1e9 * r['whole_s_per_pe_cycle']:.1f}",
                f"{r['ratio']:.2f}",
            )
            for r in rows
        ],
    )  # fmt: skip


def rows_table(r: dict) -> Table:
    """Rows without activity left out, or not."""
    return table(
        "rows without activity left out",
        "program, mesh, cycles, with s, without s, ratio, compile s (with)",
        [
            (
                r["program"], mesh(r), f"{r['cycles']:,}", f"{r['with_s']:.1f}",
                f"{r['without_s']:.1f}", f"{r['ratio']:.1f}", f"{r['compile_s']:.1f}",
            )
        ],
    )  # fmt: skip


def packets_table(cases: list[dict]) -> Table:
    """Words in packets beside single words."""
    return table(
        "packets, values off",
        "program, mesh, words per packet, ms, speedup, cycles, difference",
        [
            (
                r["program"], mesh(r), str(p["packet_words"]), f"{1e3 * p['run_s']:.1f}",
                f"{p['speedup']:.1f}", f"{p['cycles']:,}", f"{p['cycles_difference']:+.2%}",
            )
            for r in cases
            for p in r["packets"]
        ],
    )  # fmt: skip


def decode_table(r: dict) -> Table:
    """Bulk decode beside the dense reference."""
    return table(
        f"decode of {r['model']}, context {r['context']}, ms per token",
        f"dense, mesh {mesh(r)}, ratio, compile s (mesh)",
        [
            (
                f"{r['dense_ms']:.1f}", f"{r['mesh_ms']:.1f}",
                f"{r['mesh_ms'] / r['dense_ms']:.2f}", f"{r['compile_s']:.1f}",
            )
        ],
    )  # fmt: skip
