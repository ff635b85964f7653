#!/bin/bash
# Own text, in the manner of launch scripts: arrays, a quoted list, defaults, comments, a log at the end.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
TP=${1:-2}   # tensor parallel
DATA="/data/two words"

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes "$NNODES"
)
MODEL_ARGS="
    --num-layers 32 --hidden-size 4096 \
    --num-attention-heads 32 --seq-length 4096
    --max-position-embeddings 4096
"
TRAIN_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1024
    --rampup-batch-size 16 8 300000
    --lr=1e-4 --bf16
    # --hidden-dropout 0.5
    --tensor-model-parallel-size $TP
    --sequence-parallel --use-distributed-optimizer
)
TRAIN_ARGS+=(--swiglu)
echo "run with --no-such-flag"
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    ${MODEL_ARGS} \
    "${TRAIN_ARGS[@]}" \
    --data-path "$DATA" --load 'a $HOME' 2>&1 | tee train.log
