"""Write the table of published runs that ships, from a larger table: the columns that the mapping rules read, and the sources.

    python tools/import_runs.py --runs TABLE.csv [TABLE.csv ...] --out src/ironlaw/validate/data/runs.csv

Free text is not copied: facts in prose become columns.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

from ironlaw.validate.prose import read_prose

COLUMNS = (
    "id", "family", "source", "url_or_repo_path", "year", "framework", "software", "model_name", "params_b", "layers", "hidden", "heads",
    "kv_heads", "ffn_hidden", "gated_mlp", "vocab", "head_dim", "moe_experts", "moe_topk", "expert_ffn_hidden", "shared_experts",
    "dense_first_layers", "mla", "sliding_window", "mtp_layers", "moe_dispatch", "moe_dispatcher", "etp", "seq_len", "gpu_type",
    "gpu_mem_gb", "gpus", "gpus_per_node", "nic_gbps_per_gpu", "interconnect", "tp", "pp", "vpp", "vpp_filled", "cp", "ep", "dp", "sharding",
    "sequence_parallel", "micro_batch", "global_batch_seqs", "precision", "precision_filled", "recompute", "recompute_fraction",
    "flash_attention", "attention_kernel", "compile", "cuda_graphs", "tp_comm_overlap", "offload", "step_time_s", "tokens_per_s_per_gpu",
    "tflops_per_gpu", "mfu", "memory_gb_per_gpu", "memory_unit", "memory_kind", "flops_convention", "training", "lora_rank",
    "frozen_weights", "tuned", "zero_group", "gradient_dtype", "fp8_scaling", "offload_layers", "ep_comm_overlap",
    "delay_wgrad_compute", "overlap", "graph_scope", "expert_precision", "dp_shard", "trainer", "deterministic", "optimizer",
    "fallback",
)  # fmt: skip
# corrections of the table from the recipes of its rows, read on 2026-11-22. MaxText: remat_policy=custom saves the tensors that it names
# and recomputes the rest (AI-Hypercomputer/tpu-recipes, training/v5p; AI-Hypercomputer/maxtext, benchmarks/maxtext_v5p_model_configs.py).
# MLPerf: github.com/mlcommons/training_results_v4.0, NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo, conf/
# megatron_gpt_peft_tuning_config.yaml (fp8_params with fp8; ACG, ACM and ACL unset) and config_*.sh (SP=1, FP8=True); Fujitsu and Oracle
# ship the same scripts. torchtune: recipes/configs of github.com/pytorch/torchtune, read on 2026-11-23: enable_activation_checkpointing is on
# in llama3_1/8B_full_single_device, 8B_lora_single_device, 8B_qlora_single_device, 405B_qlora, llama3/70B_full and 70B_lora; the first runs
# PagedAdamW8bit, 70B_full offloads to the host. Of its table of optimisations each row adds to the one above; the first is not packed, so
# that its tokens are not known
_CUSTOM = {"recompute": "full", "recompute_fraction": "1"}
_ADAPTERS = {"recompute": "none", "sequence_parallel": "y", "frozen_weights": "fp8"}
RECIPES = {
    "maxtext-043": {**_CUSTOM, "mtp_layers": "0"},
    "maxtext-044": _CUSTOM,
    "maxtext-045": _CUSTOM,
    **dict.fromkeys((f"mlperf-0{n}" for n in (19, 31, 33, 34, 35, 36, 37, 38)), _ADAPTERS),
    **dict.fromkeys((f"tune-00{n}" for n in (3, 4, 5, 7, 8)), {"recompute": "full"}),
    **dict.fromkeys(("tune-001", "tune-002"), {"recompute": "full", "optimizer": "adam8bit"}),
    "tune-006": {"recompute": "full", "offload": "optimizer"},
    "tune-009": {"step_time_s": "", "tokens_per_s_per_gpu": ""},
    "tune-015": {"offload": "activations"},
    "tune-016": {"offload": "activations", "optimizer": "adam8bit"},
    "tune-017": {"offload": "activations", "optimizer": "adam8bit", "training": "adapters"},
    "tune-018": {"offload": "activations", "optimizer": "adam8bit", "training": "adapters", "frozen_weights": "nf4"},
}
# prime-rl, trainer/models/layers/lora/multi_moe.py (MultiLoRAGroupedExperts, use_grouped_mm), read on 2026-11-23: a grouped product where the
# device is of compute capability 9; else a loop over the experts
HOPPER = ("H100", "H200", "GH200")
LINKS = r"(\d+) slices|Omni-Path|RoCE|InfiniBand|HDR|NDR|\bIB\b|EFA|NVL72|DCN"
# in this order: a source that counts in full may say since when others halve
CONVENTIONS = (("full", "attention counted in full"), ("non-causal", "attention counted in full"), ("hal[fv]", "attention counted at half"))


def shortened(row: dict[str, str]) -> dict[str, str]:
    """One row without free text."""
    row = read_prose(row)[0]
    kept = {name: row.get(name, "") for name in COLUMNS}
    if row["family"] == "prime-rl" and row["moe_experts"] and row.get("training") == "adapters" and row["gpu_type"] not in HOPPER:
        kept["fallback"] = "adapters of experts one expert at a time"
    kept.update(RECIPES.get(row["id"], {}))
    kept["interconnect"] = ", ".join(dict.fromkeys(m.group(0) for m in re.finditer(LINKS, row["interconnect"])))
    convention = row["flops_convention"].lower()
    counted = "recompute counted" if "recompute" in convention and "no recompute" not in convention and "4/3" not in convention else ""
    attention = next((text for word, text in CONVENTIONS if re.search(word, convention)), "")
    kept["flops_convention"] = "; ".join(t for t in (attention, counted) if t)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, nargs="+", help="the larger tables, CSV, in their order")
    parser.add_argument("--out", type=Path, required=True, help="the table to write, CSV")
    given = parser.parse_args()
    rows = []
    for path in given.runs:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows += [shortened(row) for row in csv.DictReader(file)]
    with given.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows, {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
