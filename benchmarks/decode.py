"""Bulk decode of SmolLM2 on a 24x24 region beside the dense reference, token by token in turn."""

import json
import time

import numpy as np

import wafer_jax as wj

MESH = (24, 24)
PROMPT = [504, 3575, 282, 4649, 314]
TOKENS = 48


def main() -> None:
    """Print one JSON object: the median milliseconds per token of both, and the compile time."""
    model = wj.models.load("smollm2")
    context = len(PROMPT) + TOKENS + 1
    dense, mesh = model.dense, model.on(wj.hardware("wse2", mesh=MESH))
    _, dense_cache = dense.prefill(PROMPT, capacity=context)
    out = mesh.prefill(PROMPT, context=context)
    mesh_cache = out.cache
    token = int(np.argmax(out.logits))

    began = time.perf_counter()
    out = mesh.decode(token, mesh_cache)
    compile_s = time.perf_counter() - began
    logits, dense_cache = dense.decode(token, dense_cache)
    np.asarray(logits)

    dense_s, mesh_s = [], []
    for _ in range(TOKENS):
        token = int(np.argmax(out.logits))
        began = time.perf_counter()
        logits, dense_cache = dense.decode(token, dense_cache)
        logits = np.asarray(logits)
        middle = time.perf_counter()
        out = mesh.decode(token, out.cache)
        mesh_s.append(time.perf_counter() - middle)
        dense_s.append(middle - began)
    assert np.abs(logits[0] - out.logits).max() < 2e-3
    print(
        json.dumps(
            {
                "model": "SmolLM2-135M",
                "mesh": MESH,
                "context": context,
                "dense_ms": 1e3 * float(np.median(dense_s)),
                "mesh_ms": 1e3 * float(np.median(mesh_s)),
                "compile_s": compile_s,
            }
        )
    )


if __name__ == "__main__":
    main()
