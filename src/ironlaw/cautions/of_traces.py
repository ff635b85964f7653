"""The warnings of diagnoses, of stored runs and of validations. Values are in SI units; a text beside them is what the sentence prints."""

from __future__ import annotations

from ironlaw.cautions.record import Row

ROWS = {
    # files
    "file-skipped": Row("skipped: {why}"),
    "file-skipped-over": Row("skipped over: {why}"),
    "events-left-out": Row("{count} events left out: {why}"),
    "rows-left-out": Row("{table}: {count} rows {fault} and are left out"),
    "ranges-never-end": Row("{table}: {count} ranges never end and are left out"),
    "no-column": Row("{table} has no column {columns:list}{version}"),
    "no-table-of-calls": Row("no table {table}: events cannot be linked to their launch"),
    "no-ranges": Row("no NVTX ranges in the file: no steps and no operators"),
    "no-names": Row("StringIds is missing: kernels and calls have numbers instead of names"),
    "graphs-without-kernels": Row(
        "{count} CUDA graphs are recorded without their kernels; {action}", "profile with --cuda-graph-trace=node to see them"
    ),
    "grouped-calls": Row("{count} NCCL ranges with a size belong to grouped calls: their kernels have no size"),
    "no-allocations": Row(
        "no trace of allocations, so no peak; {action}", "record it with _record_memory_history(enabled='all')"
    ),
    # one trace
    "unlinked-events": Row(
        "{count} of {events} device events ({share:.0%}) have no launch in the file and are counted; {action}",
        "--unlinked drop leaves them out", "unlinked",
    ),
    "no-step-marks": Row("the trace marks no ProfilerStep: it has no steps, and no last step to drop", option="last_step"),
    "step-marked-twice": Row("ProfilerStep#{step} is marked twice at different times: each counts as a step"),
    "steps-missing": Row("{count} of the steps between ProfilerStep#{first} and #{last} are missing"),
    "steps-overlap": Row("ProfilerStep#{second} begins before #{first} ends: a launch belongs to the step that began last"),
    "clocks-differ": Row(
        "{count} device events begin up to {microseconds:,.0f} us before the call that launched them: the clocks of host and device differ,"
        " so the reasons for idle time are uncertain"
    ),
    "impossible-rank": Row("the trace says rank {rank} of {world_size} ranks, which is impossible"),
    "unknown-device": Row("{why}: its peak and bandwidth are unknown; {action}", "name the device with --on{nearest}", "on"),
    "other-product": Row(
        "the trace calls its device {device!r}, which has {usual:.0f} multiprocessors; this one has {multiprocessors:.0f}: a slice or"
        " another product; {action}",
        "name the device with --on", "on",
    ),
    "other-device": Row("--on {on}, but the trace names {device!r} ({accelerator})", option="on"),
    "faster-than-untraced": Row(
        "a traced step takes {traced_ms:.1f} ms, less than --untraced-step {untraced_ms:.1f} ms: {action}", "are both from the same run?",
        "untraced_step",
    ),
    # ranks
    "not-one-job": Row("the files are not the ranks of one job ({why}): each has its own verdict"),
    "several-jobs": Row("the traces are of jobs with {sizes:list} ranks: are they from one job?"),
    "ranks-missing": Row("{count} of {world_size} ranks are missing ({ranks}); waiting for them looks like transfer"),
    "several-devices": Row("{path}: {count} devices in one file; they are numbered in order, not by the rank in the file"),
    "second-trace": Row("{path}: a second trace of rank {rank}, after {trace}; the first one counts"),
    "no-rank": Row("{path}: no rank number; taken as rank {rank}"),
    "given-twice": Row("{path}: given twice; it counts once"),
    "unmatched-calls": Row("rank {rank}: {count} of {calls} collectives have no matching call on another rank"),
    "several-groups": Row(
        "{process_group} has {size} ranks and {traces} traces call it: several groups have this name, so none is matched"
    ),
    "unequal-calls": Row("{process_group}: the ranks made different numbers of calls ({counted}); those that agree are matched"),
    "unequal-operations": Row("{process_group}: {count} calls differ in operation from rank {rank} and are not matched"),
    "nothing-shared": Row("no collective is shared by the {ranks} ranks: nothing can be compared"),
    "shares-nothing": Row("rank {rank}: it shares no collective with the others; its clock is used unchanged"),
    "ends-apart": Row("the ends of collectives are {ns} ns apart (p95) after alignment: transfer and waiting are uncertain by as much"),
    # logs
    "wrong-results": Row("size {size}: the test counted {count} wrong values; the result is wrong, so its time means nothing"),
    "times-per-sample": Row("the log has no global_batch_size: times are per sample, not per iteration"),
    "ended-badly": Row("the run ended with status {status!r}"),
    "restarted": Row("the run restarted: the log goes back from iteration {top} to {iteration}"),
    "tokens-of-whole-job": Row("the log does not say whether its tokens per second are of one GPU: they are read as of the whole job"),
    "llm-c-prints-no-mfu": Row("llm.c does not know this device and prints no MFU"),
    "size-computed": Row("the output has no size; it is computed as throughput times duration"),
    "both-directions": Row("'algo throughput' is printed in Gbit/s and counts both directions: algbw here is half of it"),
    "mean-of-whole-run": Row("the step time is a mean over the whole run, including evaluations, checkpoints and warm-up"),
    "smoothed-rate": Row("the log is shorter than 20 s: the step time is the rate that it prints, which is smoothed"),
    "torchtitan-peak": Row("torchtitan does not know {device!r}: the MFU it prints divides by the peak of {peak}"),
    "deepspeed-profiler": Row(
        "DeepSpeed's profiler counts the matrix products of a forward pass and multiplies by three; it misses fused attention"
    ),
    "nanogpt-peak": Row("the MFU that nanoGPT prints divides by the bf16 peak of an A100 (312 TFLOP/s) on every device"),
    "no-runtime": Row("no train_runtime: the run did not end, and before that a trainer_state.json has no times"),
    # measured against predicted
    "not-compared": Row("not compared with an estimate: the log does not say the tokens of a step; {action}", "give {missing:and}{length}"),
    "no-estimate-of-the-log": Row("not compared with an estimate: {why}"),
    "compared-with-best-batch": Row(
        "the measured throughput is compared with the best batch of an estimate: {tokens:,.0f} tokens a step are taken; {action}",
        "give {missing:and}", "global_batch_size",
    ),
    "no-device-name": Row("the measured file has no device name: it may be another device than the predicted {accelerator}", option="on"),
    "not-the-same-device": Row("not the same device: measured on {device!r}, predicted for {accelerator}", option="on"),
    "not-the-same-gpus": Row("not the same number of accelerators: measured on {measured}, predicted for {predicted}", option="gpus"),
    "not-the-same-layers": Row("not the same layers: {measured:g} on the measured rank, {predicted:g} on the predicted stage"),
    "not-the-same-micro-batches": Row("not the same micro-batches: {measured:g} per step measured, {predicted:g} predicted"),
    "not-a-transformer": Row(
        "not a transformer: convolutions take {share:.0%} of the measured step, and ironlaw estimates transformers only", option="model"
    ),
    "not-the-same-recomputation": Row(
        "not the same recomputation: {measured:.1%} of the computation measured, {predicted:.1%} predicted; {action}{aside}",
        "give the run's --recompute", "recompute",
    ),
    "mfu-above-peak": Row("the measured MFU is {mfu:.0%}, above 100 %: the peak, the device or the FLOP count is wrong"),
    "mfu-counts-differently": Row(
        "the MFUs count differently: {measured:.1%} as measured, {predicted:.1%} with the FLOPs and the peak of the estimate over "
        "the same step"
    ),
    "few-steps": Row("{steps} measured {noun}: too few to tell a difference from noise; {action}", "profile 3 or more"),
    "other-stage": Row(
        "the estimate describes the slowest pipeline stage ({stage}): {compared}a rank of another stage computes less and waits more"
    ),
    "chosen-values": Row("the estimate chose {values:list}; {action}", "give the values of the run"),
    "estimate-did-not-fit": Row(
        "the estimate needs {needed_gib:.1f} GiB of {room_gib:.1f} GiB, but the run fitted: another plan, or a wrong estimate"
    ),
    # stored runs, validation
    "fingerprints-differ": Row("the fingerprints differ in {names:list}: your change is not the only difference"),
    "machine-shared": Row("others used the machine during one of the runs"),
    "already-stored": Row("the store already has this diagnosis: nothing was added"),
    "label-replaced": Row(
        "the store already has this diagnosis: nothing was added; its label was {old} and is now replaced", option="label"
    ),
    "noise-unknown": Row(
        "noise not known: the store has {learned_from} other runs of this fingerprint, {needed} are needed; the limit is {limit:.0%}"
    ),
    "only-step-time": Row("only the step time is checked: the parts of a step are not in both runs"),
    "far-apart": Row(
        "line {line} ({id}): measured {measured:,.4g} s a step, predicted {predicted:,.4g} s, {times:,.0f} times apart: {action}",
        "check its units (seconds; tokens/s and TFLOP/s of one accelerator)",
    ),
}  # fmt: skip
