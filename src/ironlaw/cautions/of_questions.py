"""The warnings of the questions beside an estimate. Values are in SI units; a text beside them is what the sentence prints."""

from __future__ import annotations

from ironlaw.cautions.record import Row

ROWS = {
    # plans
    "does-not-fit": Row("the plan does not fit in memory{remedies}"),
    "does-not-fit-at": Row("on {gpus:,.0f} accelerators the plan does not fit in memory: {action}", "ironlaw estimate says by how much"),
    "does-not-fit-on": Row("this plan does not fit into the memory of {accelerator} ({action})", "ironlaw estimate says by how much"),
    "does-not-fit-a-site": Row("the model does not fit a site's accelerators: {action}", "ironlaw estimate says by how much"),
    "failures-left-out": Row("failures are left out: with them the run makes almost no progress", option="mttf"),
    "batches-differ": Row(
        "the default batch differs with the number of accelerators: {action}", "give --global-batch-size to compare one job",
        "global_batch_size",
    ),
    "above-measured-rows": Row(
        "MFU above the highest that published runs of such a model measured (in brackets, and of how many): {rows:list}"
    ),
    # money and energy
    "prices-not-comparable": Row("the prices are not comparable: {reasons:list}: {action}", "give --price A=USD,B=USD", "price"),
    "no-price": Row("no price of {accelerators:list} is known: {action}", "give --price {first}=USD", "price"),
    "above-dense-peak": Row("--peak of {accelerator} is {times:.2f} times its dense peak: no kernel is that fast", option="peak"),
    "no-measured-power": Row("no measured power of {accelerator} nodes is published: rated power is an upper bound"),
    "switches-not-counted": Row("power of switches is not counted: {action}", "give --network-power per accelerator", "network_power"),
    "spot-makes-no-progress": Row(
        "on spot machines the run makes no progress: it is stopped sooner than it restarts or writes a checkpoint", option="spot_price"
    ),
    "spot-without-interruptions": Row("spot is counted without interruptions, which is a lower bound: {lack}", option="spot_mttf"),
    "staff-not-counted": Row("staff and repairs of owned machines are not counted: {action}", "give --staff per accelerator", "staff"),
    "rent-is-cheaper": Row("bought accelerators cost more than rent even when used all the time", option="purchase_price"),
    "budget-sets-no-limit": Row("--budget sets no limit: the price is 0", option="budget"),
    # failures
    "single-machine-failures": Row(
        "failure rates of single machines are optimistic for large jobs: on Meta's RSC 1,024 GPUs ran 7.9 h between failures,"
        " independent nodes would run 28.8 h; {action}",
        "give --mttf measured in jobs of this size", "mttf",
    ),
    "goodput-not-validated": Row(
        "goodput is not validated: no published run gives its failure rate, restart time, interval and goodput together"
    ),
    "spares-not-validated": Row("spare nodes are not validated: no published run gives its spares, repair time and goodput together"),
    "spares-of-slices": Row(
        "slices of a torus: a spare node can replace a failed one only where the switches of the pod can join it", option="spares"
    ),
    "more-spares": Row("more than {most} spare nodes were not compared, and they may be cheaper still", option="spares"),
    "independent-interruptions": Row(
        "interruptions are taken to be independent: a provider that needs its machines back takes many at once", option="spot_price"
    ),
    "fleet-keeps-accelerators": Row(
        "a job keeps its accelerators from its start to its end; idle accelerators are taken to draw nothing"
    ),
    # computed by hand
    "no-plan-divides": Row("no plan divides {gpus:,.0f} GPUs and the batch: predictions are for {taken:,.0f}", option="gpus"),
    "no-plan-by-hand": Row("no plan divides {gpus:,.0f} GPUs and the batch: the steps are computed by hand", option="gpus"),
    "no-estimate": Row("estimate has no answer, the steps are computed by hand: {why}"),
    "given-above-predicted": Row(
        "--mfu is {mfu:.1%}; the predicted {quantity} of the best plan of {gpus:,.0f} GPUs is {predicted:.1%}", option="mfu"
    ),
    "constant-mfu": Row(
        "simplified: every step runs at {mfu:.0%} MFU, whatever the plan; {action}", "leave --mfu out for an estimate", "mfu"
    ),
    "constant-mfu-rows": Row(
        "simplified: every row at {mfu:.0%} of the peak, whatever the plan; {action}", "give --gpus and no --mfu for estimates", "mfu"
    ),
    "constant-mfu-sites": Row(
        "simplified: constant MFU, accelerators rounded down, no plan, no memory: {action}", "for a full answer use ironlaw sites MODEL ..."
    ),
    # sites
    "latency-not-counted": Row(
        "places are unknown, so the latency of an exchange is not counted: {action}", "give --latency or name the sites", "latency"
    ),
    "power-limit": Row(
        "{site} has {limit:@W}, {gpus:,.0f} {accelerator} draw {power:@W} (rated)", option="power_limit"
    ),
    "unknown-grid": Row(
        "the grid of {site} is unknown, so the world average is assumed and its carbon cannot be compared with another site's: {action}",
        "give --grid {site}=REGION ({nearest})", "grid",
    ),
    "sites-wait": Row("sites wait for {slowest}: {action}", "--batch-split balanced is {gain:.0%} faster", "batch_split"),
    "loss-of-rare-exchanges": Row(
        "exchanging less often raises the loss, which is not counted: DiLoCo's papers report little at 100 to 500 steps",
        option="inner_steps",
    ),
    "outer-state-not-placed": Row(
        "the outer state of DiLoCo needs 8 bytes a parameter, which --mfu (simplified) does not place", option="mfu"
    ),
    "no-hourly-carbon": Row(
        "no site has hourly carbon, so pauses save none: {action}", "give --carbon-profile NAME=FILE with 24 values of g/kWh",
        "carbon_profile",
    ),
    "no-electricity-price": Row(
        "no price of electricity is recorded for {sites:list}: {action}", "give --electricity-price {first}=USD_PER_KWH",
        "electricity_price",
    ),
    # data
    "workers-share-cores": Row(
        "{workers:,.0f} workers of a node share {cores:,.0f} cores: they will be slower", option="workers"
    ),
    "storage-not-counted": Row(
        "storage is not counted: {action}", "give --disk, --storage-network, --shared-storage or --fetch-time", "disk"
    ),
    # scaling
    "mixture-outside-fits": Row(
        "the fits are of dense models: a mixture lies between a dense model of its active parameters and one of its total parameters"
    ),
    "loss-extrapolated": Row(
        "{value:@parameter} are outside the {least:@parameter} to {most:@parameter} that the loss was fitted on: extrapolated"
    ),
    "tokens-extrapolated": Row("{value:@token} are outside the {least:@token} to {most:@token} that the loss was fitted on: extrapolated"),
    "batch-extrapolated": Row(
        "DeepSeek's batch and learning rate were fitted on {least:g} to {most:g} FLOP: extrapolated "
        "(at 8.04e23 FLOP they give 19.3 M tokens, 18.9 M were used)"
    ),
    # inference, differences
    "first-order-serving": Row(
        "first order: no queueing, no paging, no speculative decoding; kernels are as fast as training kernels of their size"
    ),
    "no-causes": Row("no causes: {why}"),
    # roofline
    "above-roof": Row("{operator}: the measured time is above a roof, which is impossible"),
    "above-peak": Row("a measured step above the peak is impossible"),
    "no-host-bandwidth": Row("the catalogue has no bandwidth of this host's memory: it does not limit the way from storage"),
    "least-bytes": Row("least bytes: no operator finds its input in a cache, and none is fused"),
    "memory-leaves-out": Row(
        "memory leaves out workspaces of convolutions, gradients of activations in work and fragmentation: {action}", "keep some free"
    ),
    "time-falls": Row(
        "time falls as size grows, which no real cost does: {action}", "check which time belongs to which size, and that runs were warm"
    ),
    "several-readings": Row(
        "the interval allows more than one reading: {action}", "measure a wider range of sizes, and each size several times"
    ),
    "not-only-bandwidth": Row(
        "a compute-bound product is proportional to its rows too, so proportional time alone does not prove a bandwidth limit: {action}",
        "compare the intensity with the ridge point (roofline --gemm)",
    ),
    # the three-roof model
    "three-roof-leaves-out": Row(
        "the three-roof model leaves out the traffic of tensor, pipeline and context parallelism and the routing of experts, and counts"
        " replicas of several accelerators as one; the network share of the estimate has all of it",
        option="formulas",
    ),
    "three-roof-mfu": Row(
        "the three-roof model implies an MFU of {shares}; tuned runs reach {usual}: it counts too few GPUs", option="formulas"
    ),
    "three-roof-printed": Row(
        "as printed, {accelerator}: the network term ignores the number of ranks, and one accelerator of {gigabytes:,.0f} GB is assumed to"
        " fit a replica that needs {replica:g}",
        option="formulas",
    ),
    "three-roof-no-answer": Row(
        "{accelerator}: a replica needs {replica:g}, {gpus:g} are given: the three-roof model has no answer", option="gpus"
    ),
    # tables of optimize
    "amdahl-only": Row(
        "Amdahl's curve has no model, no network and no overlap: {action}", "ironlaw estimate MODEL counts all three"
    ),
    "energies-of-45-nm": Row("on-chip and arithmetic numbers are of 45 nm chips: trust ratios more than values"),
    "no-public-energy": Row("registers and L2 are left out: no public source gives their energy with the width of an access"),
    "counted-as-hbm2e": Row("memory traffic is counted as HBM2E, the newest memory with a public number"),
    "frozen-gradients": Row(
        "gradients pass through frozen weights: activations are stored, except inputs of layers without an adapter"
    ),
    "fnuz-formats": Row("fp8 on MI300X and MI325X has another bias and no infinities (fnuz): its largest E4M3 number is 240, not 448"),
    "published-costs": Row(
        "USD then are published costs or estimates of rent, without people and failed runs; see the grade of each source"
    ),
    "forms-have-one-micro-batch": Row("the estimate has all micro-batches in flight; the two forms have one"),
    "busy-may-wait": Row(
        "a busy accelerator may still wait for memory or network, as any kernel counts as busy: {action}", "give MODEL for the full answer"
    ),
}  # fmt: skip
