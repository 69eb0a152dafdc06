"""A tiny configuration per family, with the attributes that published files of it have."""

from typing import Any

from models.tiny_llama import LLAMA3, TINY, YARN

_QWEN = {
    "attention_dropout": 0.0,
    "bos_token_id": 3,
    "eos_token_id": 5,
    "initializer_range": 0.02,
    "max_window_layers": 28,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000.0,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
}
_COMMON = {k: v for k, v in TINY.items() if k != "torch_dtype"} | {"num_hidden_layers": 2}

_EXPERTS = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 24,
    "num_experts": 7,
    "num_experts_per_tok": 2,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "rope_scaling": None,
    "sliding_window": None,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama 3": {**_COMMON, "rope_scaling": LLAMA3, "attention_bias": False, "mlp_bias": False},
    "code llama": {
        **{k: v for k, v in _COMMON.items() if k not in ("head_dim", "num_key_value_heads")},
        "rope_theta": 1000000,
        "rope_scaling": None,
        "pretraining_tp": 1,
    },
    "qwen2": {
        **{k: v for k, v in _COMMON.items() if k != "head_dim"},
        **_QWEN,
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "sliding_window": 131072,
        "tie_word_embeddings": True,
        "rope_scaling": YARN,
    },
    "qwen2.5, untied": {
        **{k: v for k, v in _COMMON.items() if k != "head_dim"},
        **_QWEN,
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "sliding_window": 131072,
        "use_mrope": False,
        "rope_scaling": {**YARN, "beta_fast": 2.0, "attention_factor": 1.3, "truncate": False},
    },
    "qwen3": {
        **_COMMON,
        **_QWEN,
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "rope_scaling": None,
        "sliding_window": None,
        "tie_word_embeddings": True,
    },
    "qwen3 moe": {
        **_COMMON,
        **_QWEN,
        **_EXPERTS,
        "norm_topk_prob": True,
    },
    "qwen3 moe, not renormalised": {
        **_COMMON,
        **_QWEN,
        **_EXPERTS,
        "norm_topk_prob": False,
        "num_experts_per_tok": 3,
    },
    "minimax m2": {
        **{k: v for k, v in _COMMON.items() if k != "rope_scaling"},
        "architectures": ["MiniMaxM2ForCausalLM"],
        "attn_type_list": [1, 1],
        "auto_map": {"AutoConfig": "configuration_minimax_m2.MiniMaxM2Config"},
        "bos_token_id": 3,
        "eos_token_id": 5,
        "intermediate_size": 24,
        "model_type": "minimax_m2",
        "mtp_transformer_layers": 1,
        "num_experts_per_tok": 3,
        "num_local_experts": 7,
        "num_mtp_modules": 3,
        "qk_norm_type": "per_layer",
        "rope_theta": 5000000,
        "rotary_dim": 4,
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
        "use_cache": True,
        "use_mtp": True,
        "use_qk_norm": True,
        "use_routing_bias": True,
    },
}
