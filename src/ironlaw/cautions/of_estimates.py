"""The warnings of estimates and searches. Values are in SI units; a text beside them is what the sentence prints."""

from __future__ import annotations

from ironlaw.cautions.record import Row

ROWS = {
    # the question
    "left-out": Row("left out: {item}"),
    "prior-constants": Row(
        "kernel constants of {accelerator} are priors, not fitted to operators measured on it: expect wider errors", option="on"
    ),
    "older-constants": Row(
        "the constants are those of {constants}; the laws are those of ironlaw {tool}, so an answer of that time may differ",
        option="calibration_version",
    ),
    "other-link": Row("node {node} joins its accelerators by {link}, {accelerator} usually has {usual}", option="node"),
    "long-sequence": Row("seq_len {seq_len:,.0f} exceeds the model's {kind} of {positions:,.0f}", option="seq_len"),
    "no-run-of-this-kind": Row(
        "no published run of an encoder, an encoder-decoder or a model with a tower is among those of the error band", option="model"
    ),
    "batch-counts-sequences": Row(
        "global_batch_size {global_batch_size:,.0f} counts sequences: {tokens:@token} a step; {action}",
        "for tokens give --global-batch-tokens", "global_batch_size",
    ),
    "assumed-drives": Row(
        "the record of {node} has no bandwidth of NVMe drives, so {drives} are assumed for each server, those of a"
        " DGX-2 ({title}; grade {grade}): {action}",
        "give yours as nvme_bandwidth in a node record of a --catalog folder", "offload",
    ),
    "cp-not-searched": Row(
        "cp is 1 where the rest of the plan is given: {action}", "at seq_len {seq_len:,.0f} context parallel (--cp) may be faster", "cp"
    ),
    "no-effect": Row("{flag} has no effect {why}"),
    "independent-failures": Row(
        "failures are counted as independent and accelerators as alike, which is optimistic: on Meta's RSC 1,024 GPUs ran 7.9 h between"
        " failures where the rate of its nodes says 28.8 h; {action}",
        "give --mttf measured in jobs of this size", "mttf",
    ),
    # the plan
    "seldom-run": Row(
        "few people run {choices:and} on {framework}: it was tried because no other plan fits these accelerators", option="framework"
    ),
    "batch-over-limit": Row(
        "{gpus:,.0f} has few divisors: the batch of {batch} tokens is above the limit of {limit} for this run", option="global_batch_size"
    ),
    "fewer-accelerators": Row(
        "{fewer:,.0f} of your {gpus:,.0f} process {more} tokens/s (MFU {mfu_then:.1%} against {mfu:.1%}{within}): {action}",
        "leave {idle:,.0f} idle", "gpus",
    ),
    "batch-splits-badly": Row(
        "a batch of {global_batch_size:g} splits badly over {gpus:,.0f} GPUs: {action}",
        "--global-batch-size {better:g} likely gives {gain:.0%} more tokens/s", "global_batch_size",
    ),
    "small-batch": Row(
        "a batch of {batch} tokens is small for {gpus:,.0f} GPUs: {action}; a larger batch may need more tokens for the same loss",
        "--global-batch-size {better:g} ({better_batch}) likely gives {times:.1f} times the tokens/s", "global_batch_size",
    ),
    "search-stopped": Row(
        "partial: the search stopped after {seconds:.0f} s, with {begun} of {settings} settings begun; {action}",
        "raise --time-limit, or narrow it with --fix", "time_limit",
    ),
    # a row of an estimate
    "little-free-memory": Row("no plan leaves {margin:.1%} of device memory free: this is the fastest that fits", option="margin"),
    "no-error-band": Row("no error band: no published run like this one was scored ({kind})"),
    "above-measured": Row(
        "{quantity} {value:.1%} is above the highest that a published run measured in {where}: {highest:.1%} ({run}, {of_runs})"
    ),
    "optimizer-in-host": Row(
        "this plan keeps the optimizer in host memory, which takes {seconds:@s} of each step ({share:.1%}); {action}",
        "--offload none asks for a plan without it", "offload",
    ),
    "pages-moved": Row(
        "{bytes:@B} of the optimizer's pages find no room on the device: moving them takes {seconds:@s} of each step ({share:.1%})",
        option="optimizer",
    ),
    "gathers-more-than-it-shards": Row(
        "zero 3 gathers {gathered:@B} of whole weights and gradients at once and saves {saved:@B} of weights: {action}",
        "zero 2 may need less", "zero",
    ),
    "may-not-fit": Row(
        "the plan uses {used:.1%} of device memory and is {likely:.0%} likely to fit: a plan that leaves {margin:.1%} free is"
        " {certainty:.0%} likely to ({action})",
        "--margin {margin:.1%} makes a plan that leaves less an error", "margin",
    ),
    "never-finishes": Row(
        "no estimate with failures: one every {mttf:@s} is more often than a restart ({restart_time:@s}), the interval between checkpoints"
        " ({checkpoint_interval:@s}) or the write of one ({checkpoint_time:@s}) allows",
        option="mttf",
    ),
    "group-cut": Row(
        "{axis}-parallel groups of {span} accelerators fit a domain but are cut by its edge: the job takes {share:g} of each domain",
        option="gpus_per_domain",
    ),
    "group-cut-by-share": Row(
        "{axis}-parallel groups of {span} accelerators fit a domain but are cut by its edge: the job takes {share:g} of each domain;"
        " {action}",
        "--gpus-per-domain {whole:g} keeps them whole", "gpus_per_domain",
    ),
    "no-slice": Row(
        "{gpus:,} chips are no slice of {node}, the nearest are {nearest}: links of a slice are assumed all the same", option="gpus"
    ),
    "many-slices": Row("{gpus:,} chips are {slices:,} slices of {share:,}: {action}", "{fewer:,} or {more:,} fill whole pods", "gpus"),
    "broken-rule": Row("{says}"),
    # a table of questions
    "strange-column": Row("column {column!r} is no option and is ignored; {action}", "did you mean {nearest}?"),
    "more-strange-columns": Row("and {count} more such columns"),
}  # fmt: skip
