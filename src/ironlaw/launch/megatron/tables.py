"""Megatron-LM's arguments in three tables: mapped to an option, ignored for a reason, refused for a reason.

Names and defaults come from ``megatron/training/arguments.py`` and from the configurations that Megatron Core builds arguments
from, read in November 2026 (https://github.com/NVIDIA/Megatron-LM). A meaning that begins with ``approximated:`` is printed
whenever the argument is given.
"""

from __future__ import annotations


def _by_argument(table: dict[str, str]) -> dict[str, str]:
    """Turn a table of meanings, each with its arguments as words, into a table of arguments."""
    by_argument: dict[str, str] = {}
    for meaning, names in table.items():
        for name in names.split():
            if f"--{name}" in by_argument:
                raise ValueError(f"--{name} is in the table twice")
            by_argument[f"--{name}"] = meaning
    return by_argument


MAPPED: dict[str, str] = _by_argument(
    {
        # model
        "num_hidden_layers": "num-layers encoder-num-layers",
        "hidden_size": "hidden-size",
        "intermediate_size": "ffn-hidden-size",
        "num_attention_heads": "num-attention-heads",
        "num_key_value_heads": "group-query-attention num-query-groups",
        "head_dim": "kv-channels",
        "vocab_size, padded to a multiple of tp": "vocab-size padded-vocab-size make-vocab-size-divisible-by",
        "max_position_embeddings": "max-position-embeddings",
        "position_embedding": "position-embedding-type use-rotary-position-embeddings no-position-embedding",
        "tie_word_embeddings off": "untie-embeddings-and-output-weights",
        "gated_mlp and hidden_act": "swiglu quick-geglu squared-relu openai-gelu",
        "norm": "normalization",
        "biases of linear layers": "disable-bias-linear add-qkv-bias",
        "qk_norm": "qk-layernorm",
        "attention_sinks": "softmax-type",
        "sliding_window and sliding_window_layers": "window-size window-attn-skip-freq",
        "dropout": "attention-dropout hidden-dropout",
        "num_experts": "num-experts",
        "num_experts_per_tok": "moe-router-topk",
        "n_group and topk_group": "moe-router-num-groups moe-router-group-topk",
        "moe_intermediate_size": "moe-ffn-hidden-size",
        "shared_expert_intermediate_size": "moe-shared-expert-intermediate-size",
        "shared_expert_gate": "moe-shared-expert-gate",
        "first_k_dense_replace and moe_layer_freq": "moe-layer-freq",
        "router_bias": "moe-router-enable-expert-bias",
        "capacity_factor": "moe-expert-capacity-factor moe-pad-expert-input-to-capacity",
        "latent attention": "multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim",
        "num_nextn_predict_layers": "mtp-num-layers",
        # batch
        "seq_len": "seq-length encoder-seq-length",
        "micro_batch_size": "micro-batch-size",
        "global_batch_size": "global-batch-size step-batch-size-schedule rampup-batch-size",
        # mesh
        "tp": "tensor-model-parallel-size",
        "sp": "sequence-parallel",
        "pp": "pipeline-model-parallel-size",
        "vpp": "num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank",
        "layers_per_stage": "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers pipeline-model-parallel-layout",
        "count_embedding": "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split",
        "cp": "context-parallel-size",
        "cp_method": "cp-comm-type",
        "cp_inner": "hierarchical-context-parallel-sizes",
        "ep": "expert-model-parallel-size",
        "etp": "expert-tensor-parallel-size moe-extended-tp",
        "zero": "use-distributed-optimizer use-megatron-fsdp use-custom-fsdp use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward"
        " data-parallel-sharding-strategy",
        "dp_replicate": "num-distributed-optimizer-instances",
        # memory
        "recompute": "recompute-activations recompute-granularity recompute-method recompute-num-layers recompute-modules"
        " moe-layer-recompute",
        "offload activations": "cpu-offloading-num-layers fine-grained-activation-offloading offload-modules",
        "offload optimizer": "optimizer-cpu-offload optimizer-offload-fraction overlap-cpu-optimizer-d2h-h2d",
        # numbers
        "precision": "bf16 fp16 fp8-format fp8-recipe fp4-format fp4-recipe",
        "fp8_param_gather": "fp8-param-gather fp4-param-gather",
        "bf16_layers_at_start": "first-last-layers-bf16 num-layers-at-start-in-bf16",
        "bf16_layers_at_end": "num-layers-at-end-in-bf16",
        "optimizer": "optimizer sgd-momentum",
        "gradient_dtype": "grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32 main-grads-dtype megatron-fsdp-main-grads-dtype",
        "states of the optimizer": "use-precision-aware-optimizer exp-avg-dtype exp-avg-sq-dtype main-params-dtype"
        " megatron-fsdp-main-params-dtype",
        # kernels and overlap
        "flash_attention": "attention-backend use-flash-attn transformer-impl",
        "framework": "use-legacy-models",
        "overlap": "overlap-grad-reduce overlap-param-gather tp-comm-overlap no-overlap-p2p-communication"
        " overlap-moe-expert-parallel-comm combined-1f1b",
        # read, but counted approximately
        "approximated: deterministic kernels are timed as ordinary ones": "deterministic-mode",
        "approximated: a CUDA graph saves launches; its memory pool is not counted": "cuda-graph-impl enable-cuda-graph"
        " external-cuda-graph cuda-graph-scope cuda-graph-modules",
        "delay_wgrad_compute": "delay-wgrad-compute",
        "approximated: attention backward is counted after the combine that it overlaps": "ep-overlap-early-attn-memory-release",
        "approximated: the shared expert does not hide the dispatch": "moe-shared-expert-overlap",
        "moe_dispatcher": "moe-token-dispatcher-type moe-flex-dispatcher-backend",
        "approximated: weights are stored in both orientations": "keep-fp8-transpose-cache",
        "approximated: weights in mxfp8 are gathered through the gradient buffer": "reuse-grad-buf-for-mxfp8-param-ag",
        "approximated: weight gradients are also computed in fp8": "no-fp8-wgrad",
        "approximated: the kernel that adds weight gradients to the main gradients is not counted": "no-gradient-accumulation-fusion",
        "approximated: kernels are counted as fused": "no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion"
        " no-masked-softmax-fusion no-persist-layer-norm",
        "approximated: residuals in fp32 are counted in 2 bytes": "fp32-residual-connection",
        "approximated: every tensor-parallel rank stores whole activation checkpoints": "distribute-saved-activations",
        "deferred_wgrad": "defer-embedding-wgrad-compute wgrad-deferral-limit",
        "microbatch_group": "microbatch-group-size-per-virtual-pipeline-stage",
        "fused_loss": "cross-entropy-loss-fusion cross-entropy-fusion-impl",
        "grouped_experts": "moe-grouped-gemm",
        "approximated: data-parallel ranks are placed nearer to each other than pipeline stages": "use-tp-pp-dp-mapping",
        "approximated: repeated prediction layers are counted as separate layers": "mtp-use-repeated-layer",
        "approximated: experts run one after another, but are counted as one grouped kernel": "moe-use-legacy-grouped-gemm",
        "approximated: the optimizer step does not hide the all-gather of the first layers": "overlap-param-gather-with-optimizer-step",
        "approximated: gradients are reduced in the type they are stored in": "ddp-reduce-scatter-with-fp32-accumulation"
        " megatron-fsdp-grad-comm-dtype",
        "approximated: the teacher model of a distillation is not counted": "export-te-mcore-model",
        "approximated: two FSDP buffers are always counted": "fsdp-double-buffer suggested-communication-unit-size",
    }
)

IGNORED: dict[str, str] = _by_argument(
    {
        "logging": "log-interval log-params-norm log-num-zeros-in-grad log-throughput log-progress log-energy log-timers-to-tensorboard"
        " log-memory-to-tensorboard log-memory-interval log-validation-ppl-to-tensorboard log-world-size-to-tensorboard"
        " no-log-loss-scale-to-tensorboard log-device-memory-used log-max-attention-logit log-straggler disable-straggler-on-startup"
        " straggler-ctrlr-port straggler-minmax-count tensorboard-dir tensorboard-log-interval tensorboard-queue-size timing-log-level"
        " timing-log-option no-barrier-with-level-1-timing wandb-project wandb-entity wandb-exp-name wandb-save-dir logging-level"
        " no-one-logger one-logger-project one-logger-run-name one-logger-async app-tag-run-name app-tag-run-version"
        " config-logger-dir moe-per-layer-logging enable-one-logger",
        "profiling": "profile profile-step-start profile-step-end profile-ranks use-pytorch-profiler record-memory-history"
        " memory-snapshot-path nvtx-ranges run-workload-inspector-server record-shapes",
        "data and tokenizer files": "data-path train-data-path valid-data-path test-data-path data-args-path per-split-data-args-path"
        " data-cache-path split mock-data no-mmap-bin-files num-workers num-dataset-builder-threads dataloader-type"
        " object-storage-cache-path mid-level-dataset-surplus allow-ambiguous-pad-tokens sample-rate mask-prob short-seq-prob"
        " vocab-file merge-file vocab-extra-ids tokenizer-type tokenizer-model tokenizer-metadata tiktoken-pattern"
        " tiktoken-num-special-tokens tiktoken-special-tokens legacy-tokenizer trust-remote-code fim-data fim-rate fim-spm-rate"
        " fim-split-sample fim-fragment-rate fim-no-prefix fim-prefix-token fim-middle-token fim-suffix-token fim-pad-token"
        " fim-eod-token disable-msc no-use-tokenizer-model-from-checkpoint-args phase-transition-iterations",
        "masks and losses of documents: whole sequences are always computed": "reset-position-ids reset-attention-mask eod-mask-loss"
        " no-create-attention-mask-in-dataloader calculate-per-token-loss",
        "checkpoints": "save load save-interval persistent-save-interval save-retain-interval no-save-optim no-save-rng no-load-optim"
        " no-load-rng load-main-params-from-ckpt no-strict-fsdp-dtensor-load non-persistent-save-interval non-persistent-ckpt-type"
        " non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo finetune pretrained-checkpoint"
        " ckpt-step no-initialization use-checkpoint-args use-mp-args-from-checkpoint-args exit-on-missing-checkpoint use-dist-ckpt"
        " use-persistent-ckpt-worker auto-detect-ckpt-format dist-ckpt-format ckpt-format ckpt-convert-format ckpt-convert-save"
        " ckpt-convert-update-legacy-dist-opt-format ckpt-fully-parallel-save no-ckpt-fully-parallel-save async-save async-strategy"
        " async-ckpt-use-cpu-shm ckpt-fully-parallel-load ckpt-fully-parallel-load-per-rank-objects ckpt-assume-constant-structure"
        " ckpt-drop-redundant-extra-state no-ckpt-load-validate-sharding-integrity dist-ckpt-strictness dist-ckpt-save-pre-mcore-014"
        " dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient verify-integrity"
        " replication replication-jump replication-factor moe-use-upcycling moe-upcycling-granularity",
        "length of the run": "train-iters train-samples exit-interval exit-duration-in-mins exit-signal-handler"
        " exit-signal-handler-for-training iterations-to-skip train-sync-interval",
        "evaluation is not counted": "eval-iters eval-interval eval-global-batch-size eval-micro-batch-size full-validation"
        " multiple-validation-sets test-mode",
        "random numbers and initial weights": "seed data-parallel-random-init init-method-std embedding-init-method-std"
        " init-method-xavier-uniform use-cpu-initialization te-rng-tracker inference-rng-tracker init-model-with-meta-device",
        "learning rates, decay and clipping": "lr min-lr lr-decay-style lr-decay-iters lr-decay-samples lr-warmup-fraction"
        " lr-warmup-iters lr-warmup-samples lr-warmup-init lr-wsd-decay-style lr-wsd-decay-samples lr-wsd-decay-iters decoupled-lr"
        " decoupled-min-lr override-opt-param-scheduler use-checkpoint-opt-param-scheduler weight-decay start-weight-decay"
        " end-weight-decay weight-decay-incr-style clip-grad adam-beta1 adam-beta2 adam-eps muon-momentum muon-no-split-qkv"
        " muon-use-nesterov muon-scale-mode muon-fp32-matmul-prec muon-num-ns-steps muon-tp-mode muon-extra-scale-factor"
        " head-lr-mult decrease-batch-size-if-needed",
        "loss scaling: one number for each step": "loss-scale initial-loss-scale min-loss-scale loss-scale-window hysteresis",
        "weight of a loss": "mtp-loss-scaling-factor moe-aux-loss-coeff moe-z-loss-coeff moe-input-jitter-eps",
        "constants inside a kernel, without effect on time or memory": "norm-epsilon apply-layernorm-1p rotary-base rotary-percent"
        " rotary-interleaved rotary-seq-len-interpolation-factor rotary-scaling-factor use-rope-scaling rope-scaling-factor rope-type"
        " no-rope-freq mrope-section mscale mscale-all-dim apply-query-key-layer-scaling activation-func-clamp-value"
        " glu-linear-offset onnx-safe disable-bf16-reduced-precision-matmul qk-l2-norm apply-residual-connection-post-layernorm"
        " relative-attention-num-buckets relative-attention-max-distance beta-fast beta-slow",
        "fused kernels always compute softmax in fp32": "attention-softmax-in-fp32 fp16-lm-cross-entropy",
        "kernels are counted as fused": "moe-permute-fusion moe-router-fusion"
        " use-te-activation-func use-fused-weighted-squared-relu mla-down-proj-fusion",
        "fp8 scales are small": "fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo",
        "which expert gets a row, not how many rows": "moe-router-load-balancing-type moe-router-dtype moe-router-score-function"
        " moe-router-pre-softmax moe-router-topk-scaling-factor"
        " moe-router-bias-update-rate moe-router-force-load-balancing moe-token-drop-policy moe-apply-probs-on-input"
        " moe-router-padding-for-fp8 moe-router-padding-for-quantization",
        "implementation of a collective": "moe-enable-deepep moe-deepep-num-sms moe-hybridep-num-sms"
        " ddp-num-buckets ddp-bucket-size ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective no-align-grad-reduce"
        " no-align-param-gather no-gradient-reduce-div-fusion no-scatter-gather-tensors-in-pipeline use-ring-exchange-p2p use-nccl-ub"
        " disable-symmetric-registration use-sharp sharp-enabled-group nccl-communicator-config-path high-priority-stream-groups"
        " tp-comm-overlap-cfg disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs"
        " tp-comm-overlap-rs-dgrad disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-split-ag"
        " disable-tp-comm-split-rs tp-comm-bootstrap-backend pipeline-model-parallel-comm-backend no-use-layer-wise-param-layout"
        " overlap-p2p-communication-warmup-flush use-torch-optimizer-for-cpu-offload no-pin-cpu-grads"
        " no-pin-cpu-params enable-full-sharding-in-hsdp",
        "starting processes": "distributed-backend distributed-timeout-minutes distributed-timeout-seconds-after-init local-rank"
        " lazy-mpu-init disable-gloo-process-groups enable-gloo-process-groups dump-param-to-param-group-map",
        "faults and restarts": "check-weight-hash-across-dp-replicas-interval no-check-for-nan-in-loss-and-grad check-for-spiky-loss"
        " check-for-large-grads rerun-mode error-injection-rate error-injection-type result-rejected-tracker-filename"
        " enable-ft-package calc-ft-timeouts adlr-autoresume adlr-autoresume-interval inprocess-restart inprocess-max-iterations"
        " inprocess-monitor-thread-interval inprocess-monitor-process-interval inprocess-progress-watchdog-interval"
        " inprocess-heartbeat-interval inprocess-soft-timeout inprocess-hard-timeout inprocess-heartbeat-timeout"
        " inprocess-barrier-timeout inprocess-completion-timeout inprocess-last-call-wait inprocess-termination-grace-time"
        " inprocess-granularity inprocess-active-world-size inprocess-empty-cuda-cache",
        "collecting garbage and empty memory": "manual-gc manual-gc-interval no-manual-gc-eval empty-unused-memory-level"
        " no-clone-scatter-output-in-embedding",
        "warm-up steps are not counted": "cuda-graph-warmup-steps",
        "not read by Megatron any more, or a switch for other arguments": "use-mcore-models no-async-tensor-model-parallel-allreduce"
        " enable-experimental bert-no-binary-head disable-mamba-mem-eff-path",
        "inference only": "inference-max-seq-length inference-max-requests inference-max-batch-size max-tokens-to-oom"
        " inference-batch-times-seqlen-threshold inference-logging-step-interval inference-wandb-logging-step-interval"
        " flash-decode decode-only-cuda-graphs cache-mla-latents mlp-chunks-for-prefill disable-chunked-prefill"
        " nccl-all-reduce-for-prefill symmetric-ar-type moe-pad-experts-for-cuda-graph-inference use-legacy-static-engine",
    }
)

REFUSED: dict[str, str] = _by_argument(
    {
        "layers of state-space models are not modelled": "hybrid-layer-pattern hybrid-override-pattern hybrid-attention-ratio"
        " hybrid-mlp-ratio is-hybrid-model mamba-state-dim mamba-head-dim mamba-num-groups mamba-num-heads",
        "linear and other experimental attention is not modelled": "experimental-attention-variant linear-attention-type"
        " linear-attention-freq linear-conv-kernel-dim linear-key-head-dim linear-value-head-dim linear-num-key-heads"
        " linear-num-value-heads dsa-indexer-n-heads dsa-indexer-head-dim dsa-indexer-topk",
        "experts in a latent space are not modelled": "moe-latent-size",
        "a model specified in Python cannot be read": "spec",
        "layers that differ are described in another file": "heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json",
        "the arguments are in another file": "yaml-cfg kitchen-config-file kitchen-recipe-number",
        "reinforcement learning, with generation in each step, is not modelled": "perform-rl-step rl-prompts-per-eval rl-generation-lag"
        " rl-inference-tensor-model-parallel-size rl-offload-optimizer-during-inference rl-offload-kv-cache-during-training"
        " rl-remove-kv-cache-during-training rl-reset-cuda-graphs rl-partial-rollouts rl-inference-logprobs-is-correction"
        " rl-importance-sampling-truncation-coef rl-calculate-intra-group-similarity rl-use-sequence-packing"
        " rl-sequence-packing-bin-size rl-sequence-packing-algo grpo-prompts-per-step grpo-group-size grpo-iterations"
        " grpo-clamp-eps-lower grpo-clamp-eps-upper grpo-kl-beta grpo-entropy-term-weight grpo-filter-groups-with-same-reward"
        " grpo-default-temperature grpo-default-top-p langrl-env-config langrl-inference-server-type"
        " langrl-inference-server-conversation-template langrl-external-server refit-method",
        "inference and evaluation without training are not modelled": "skip-train inference-dynamic-batching"
        " inference-dynamic-batching-buffer-size-gb inference-dynamic-batching-block-size output-bert-embeddings bert-embedder-type",
        "fine-tuning on packed conversations is not read: use --document-length instead": "sft sft-tokenizer-prompt-format",
        "encoder-decoder models are not modelled": "decoder-num-layers decoder-seq-length",
        "retrieval models are not modelled": "retro-project-dir retro-add-retriever retro-cyclic-train-iters retro-encoder-layers"
        " retro-encoder-hidden-dropout retro-encoder-attention-dropout retro-num-neighbors retro-num-retrieved-chunks"
        " retro-attention-gate retro-no-verify-neighbor-count retriever-seq-length ict-head-size biencoder-projection-dim"
        " biencoder-shared-query-context-model ict-load bert-load",
        "vision models are not modelled": "vision-pretraining vision-pretraining-type vision-backbone-type img-h img-w num-channels"
        " patch-dim num-classes",
        "removed from Megatron: use --micro-batch-size, --tensor-model-parallel-size or --recompute-granularity": "batch-size"
        " model-parallel-size checkpoint-activations warmup",
        "a quantizer in user code cannot be read": "fp8-quantizer-factory fp4-quantizer-factory",
    }
)
