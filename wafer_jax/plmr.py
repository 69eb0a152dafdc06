"""PLMR, WaferLLM's device model: what a mesh machine imposes on every algorithm.

P massive parallelism, L non-uniform access latency, M constrained local memory, R constrained
routing (WaferLLM, OSDI'25, section 3). The paper names alpha and beta but gives no figures; here
they follow from the machine's latencies.
"""

from dataclasses import dataclass

from wafer_jax.hardware import HardwareSpec


@dataclass(frozen=True)
class PLMR:
    """The four properties of one machine with one mesh.

    Attributes:
      pes: P, processing elements that work at the same time.
      mesh: (Y, X).
      alpha_cycles: L, one hop through a router in hardware.
      beta_cycles: L, one software stage: over the ramp, through the core, and back,
        ``2 T_R + 1`` (Luczynski et al., HPDC'24).
      memory_bytes: M, SRAM per PE.
      data_bytes: M, what of it tiles may use.
      address_paths: R as the paper counts: paths that a header's address code can name.
      routable_colors: R as programs meet it: colours that a router can hold a route for.
    """

    pes: int
    mesh: tuple[int, int]
    alpha_cycles: int
    beta_cycles: int
    memory_bytes: int
    data_bytes: int
    address_paths: int
    routable_colors: int

    def access_cycles(self, hops: int, stages: int = 0) -> int:
        """Latency of a word over so many hops and software stages, ``alpha hops + beta stages``."""
        return self.alpha_cycles * hops + self.beta_cycles * stages

    def worst_access_cycles(self, stages: int = 0) -> int:
        """``alpha (Nw + Nh) + beta r``: from one corner to the other."""
        return self.access_cycles(sum(self.mesh), stages)

    @property
    def remote_gap(self) -> int:
        """Worst access in cycles to one cycle for the PE's own SRAM: about 1000 on a wafer."""
        return self.worst_access_cycles()


def plmr(hw: HardwareSpec) -> PLMR:
    """Derive PLMR from a machine, with the mesh that the spec has."""
    return PLMR(
        pes=hw.num_pes,
        mesh=hw.mesh,
        alpha_cycles=hw.hop_cycles,
        beta_cycles=2 * hw.ramp_cycles + 1,
        memory_bytes=hw.sram_bytes,
        data_bytes=hw.data_bytes,
        address_paths=1 << hw.address_bits,
        routable_colors=hw.colors,
    )
