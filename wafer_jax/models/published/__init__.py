"""Cost models of other people's kernels: WaferLLM's published code and the baselines of its paper.

What they predict is set beside WaferLLM's tables (arXiv 2502.04563); what this package's own
operators would take is in `mesh_costs`.
"""
