"""Model families: checkpoints, configurations, the dense reference, and their place on a mesh."""
