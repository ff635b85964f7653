"""How large a batch pays, and which learning rate goes with it."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def batch_tokens(batch, seq_len):
    """Tokens of a batch given in sequences: ``batch seq_len``.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens of one, >= 0
    Returns [token]: tokens
    Source: count; errata E003-29: batches of 256 to 4,096 are sequences, not tokens
    Leaves out: padding

    >>> float(batch_tokens(512, 1024))  # GPT-2; worked in the training chapter
    524288.0
    """
    return inside(1.0 * batch * seq_len, batch >= 0, seq_len >= 0)


def accumulated_batch(num_microbatches, micro_batch_size, data_parallel):
    """Batch of one optimizer step with gradient accumulation: ``num_microbatches micro_batch_size data_parallel``.

    Parameters
        num_microbatches [1]: micro-batches k that a rank accumulates, >= 1
        micro_batch_size [1]: sequences b of one, >= 0
        data_parallel [1]: data-parallel ranks dp, >= 1
    Returns [1]: sequences
    Source: count; the training chapter, section "Gradient accumulation" (B = k b)
    Leaves out: padding of a batch that does not divide

    >>> float(accumulated_batch(4, 16, 8))  # worked in the training chapter
    512.0
    """
    return inside(
        1.0 * num_microbatches * micro_batch_size * data_parallel, num_microbatches >= 1, micro_batch_size >= 0, data_parallel >= 1
    )


def accumulated_step(num_microbatches, micro_time, sync_time):
    """Time of a step that synchronises once, after the last micro-batch: ``num_microbatches micro_time + sync_time``.

    Parameters
        num_microbatches [1]: micro-batches k that a rank accumulates, >= 1
        micro_time [s]: forward and backward of one, >= 0
        sync_time [s]: exposed exchange of gradients and weights, and the optimizer, >= 0
    Returns [s]: time
    Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.4 (no_sync), https://arxiv.org/abs/2006.15704
    Leaves out: the pipeline's bubble; ZeRO 3, which gathers weights for every micro-batch

    >>> [round(float(accumulated_step(k, 1.0, 0.3)), 9) for k in (1, 4)]
    [1.3, 4.3]
    """
    return inside(1.0 * num_microbatches * micro_time + sync_time, num_microbatches >= 1, micro_time >= 0, sync_time >= 0)


def accumulated_step_simple(num_microbatches, micro_time, sync_time):
    """Time of a step with an overhead for each further micro-batch (simplified): ``k micro_time + (k - 1) sync_time``.

    Use accumulated_step. Where ranks synchronise once a step the overhead is not proportional to k - 1, and at k = 1 it is not zero.

    Parameters
        num_microbatches [1]: micro-batches k that a rank accumulates, >= 1
        micro_time [s]: forward and backward of one, >= 0
        sync_time [s]: overhead of one more, >= 0
    Offset [s]: k - 1 of them
    Returns [s]: time
    Source: the training chapter (docs/documents/003-training-chapter.md), section "Gradient accumulation", equation of the effective time
    Leaves out: the one synchronisation that every step has

    >>> round(float(accumulated_step_simple(4, 1.0, 0.03)), 9)  # an overhead of 3 %, in the chapter's range of 2 to 5
    4.09
    """
    time = 1.0 * num_microbatches * micro_time + (1.0 * num_microbatches - 1.0) * sync_time
    return inside(time, num_microbatches >= 1, micro_time >= 0, sync_time >= 0)


def synchronisation_saved(num_microbatches):
    """Share of synchronisations that accumulation saves, over one for every micro-batch: ``1 - 1 / num_microbatches``.

    Parameters
        num_microbatches [1]: micro-batches k that a rank accumulates, >= 1
    Returns [1]: share
    Source: count; the training chapter, GPT-2 gradient accumulation strategy
    Leaves out: how much of a synchronisation was hidden

    >>> float(synchronisation_saved(4))  # worked in the training chapter
    0.75
    """
    return inside(1.0 - ratio(1.0, 1.0 * num_microbatches), num_microbatches >= 1)


def deepseek_batch(operations):
    """Best batch for a compute: ``0.2920 C^0.3271`` tokens.

    Parameters
        operations [FLOP]: training compute C, > 0
    Offset [FLOP, token]: a power of the compute
    Returns [token]: tokens of a batch, within what comes within 0.25 % of the least loss
    Source: DeepSeek LLM, 2024, section 3.1, equation 1, https://arxiv.org/abs/2401.02954; fitted on 1e17 to 2e19 FLOP
    Leaves out: data and models unlike theirs; that the valley around the best batch is wide

    >>> round(float(deepseek_batch(5.88e23)) / 1e6, 3)  # worked in the study of ten sites
    17.392
    >>> round(float(deepseek_batch(6 * 67e9 * 2e12)) / 1e6, 1)  # they trained with 4,608 sequences of 4,096: 18.9 M
    19.3
    """
    return inside(0.2920 * np.power(np.where(operations > 0, 1.0 * operations, np.nan), 0.3271), operations > 0)


def deepseek_learning_rate(operations):
    """Best peak learning rate for a compute: ``0.3118 C^-0.1250``.

    Parameters
        operations [FLOP]: training compute C, > 0
    Offset [FLOP]: a power of the compute
    Returns [1]: learning rate of AdamW
    Source: DeepSeek LLM, 2024, section 3.1, equation 1, https://arxiv.org/abs/2401.02954; fitted on 1e17 to 2e19 FLOP
    Leaves out: other optimizers and parametrisations; that it goes with the batch of deepseek_batch

    >>> round(float(deepseek_learning_rate(6 * 67e9 * 2e12)) * 1e4, 2)  # they used 3.2e-4
    3.2
    """
    return inside(0.3118 * np.power(np.where(operations > 0, 1.0 * operations, np.nan), -0.1250), operations > 0)


def batch_of_parameters(parameters, seq_len):
    """``deepseek_batch`` with parameters where compute belongs, a mistake of the study of ten sites: ``0.2920 N^0.3271 seq_len``.

    It takes parameters for compute and tokens for sequences. Use deepseek_batch.

    Parameters
        parameters [1]: parameters N, > 0
        seq_len [token]: tokens of a sequence, >= 0
    Returns [token]: what the document calls the critical batch
    Source: the study of ten sites (docs/documents/004-across-data-centres.md), section "Critical batch size"; errata E004-1
    Leaves out: the compute, on which the law is

    >>> round(float(batch_of_parameters(70e9, 4096)))  # worked in the study of ten sites
    4218658
    """
    units = 0.2920 * np.power(np.where(parameters > 0, 1.0 * parameters, np.nan), 0.3271)
    return inside(units * seq_len, parameters > 0, seq_len >= 0)


def steps_over_least(tokens_per_step, critical_batch):
    """Steps to a loss over those of an endless batch: ``1 + critical / batch``.

    Parameters
        tokens_per_step [token]: tokens of a batch, > 0
        critical_batch [token]: critical batch, at which both steps and tokens double, >= 0
    Returns [1]: factor of at least 1
    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, equation 2.11, https://arxiv.org/abs/1812.06162
    Leaves out: that the critical batch grows while training goes on

    >>> float(steps_over_least(4e6, 4e6)), float(steps_over_least(16e6, 4e6))
    (2.0, 1.25)
    """
    return inside(1.0 + ratio(1.0 * critical_batch, 1.0 * tokens_per_step), tokens_per_step > 0, critical_batch >= 0)


def tokens_over_least(tokens_per_step, critical_batch):
    """Tokens to a loss over those of the smallest batch: ``1 + batch / critical``.

    Parameters
        tokens_per_step [token]: tokens of a batch, >= 0
        critical_batch [token]: critical batch, at which both steps and tokens double, > 0
    Returns [1]: factor of at least 1
    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, equation 2.11, https://arxiv.org/abs/1812.06162
    Leaves out: that the critical batch grows while training goes on

    >>> float(tokens_over_least(4e6, 4e6)), float(tokens_over_least(16e6, 4e6))
    (2.0, 5.0)
    """
    return inside(1.0 + ratio(1.0 * tokens_per_step, 1.0 * critical_batch), tokens_per_step >= 0, critical_batch > 0)


def linear_learning_rate(learning_rate, tokens_per_step, base_tokens_per_step):
    """Learning rate of another batch, for SGD: ``learning_rate batch / base batch``.

    Parameters
        learning_rate [1]: found good at the base batch, >= 0
        tokens_per_step [token]: tokens of the new batch, >= 0
        base_tokens_per_step [token]: tokens of the base batch, > 0
    Returns [1]: learning rate
    Source: Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.1, https://arxiv.org/abs/1706.02677
    Leaves out: that it fails near and above the critical batch, and the warm-up it needs

    >>> float(linear_learning_rate(0.1, 2048, 256))  # worked in the training chapter
    0.8
    """
    rate = 1.0 * learning_rate * ratio(1.0 * tokens_per_step, 1.0 * base_tokens_per_step)
    return inside(rate, learning_rate >= 0, tokens_per_step >= 0, base_tokens_per_step > 0)


def root_learning_rate(learning_rate, tokens_per_step, base_tokens_per_step):
    """Learning rate of another batch, for Adam: ``learning_rate sqrt(batch / base batch)``.

    Parameters
        learning_rate [1]: found good at the base batch, >= 0
        tokens_per_step [token]: tokens of the new batch, >= 0
        base_tokens_per_step [token]: tokens of the base batch, > 0
    Returns [1]: learning rate
    Source: Malladi et al., On the SDEs and Scaling Rules for Adaptive Gradient Algorithms, 2022, https://arxiv.org/abs/2205.10287
    Leaves out: the betas and epsilon of Adam, which the rule scales too

    >>> float(root_learning_rate(3e-4, 16e6, 4e6))
    0.0006
    """
    grown = ratio(1.0 * tokens_per_step, 1.0 * base_tokens_per_step)
    rate = 1.0 * learning_rate * np.sqrt(np.where(grown >= 0, grown, np.nan))
    return inside(rate, learning_rate >= 0, tokens_per_step >= 0, base_tokens_per_step > 0)


def warmup_cosine(step, learning_rate, final_share, warmup_steps, steps):
    """Linear to the peak, then half a cosine: ``peak min(step / warm-up, final + (1 - final) (1 + cos(pi progress)) / 2)``.

    Progress is 0 at the end of the warm-up and 1 at the last step; after that the rate stays at its end.

    Parameters
        step [1]: optimizer step, >= 0
        learning_rate [1]: peak, >= 0
        final_share [1]: of the peak, what is left at the end, in [0, 1]
        warmup_steps [1]: steps of the warm-up, >= 0
        steps [1]: steps of the run, > 0
    Where: steps > warmup_steps
    Returns [1]: learning rate of the step
    Source: Loshchilov and Hutter, SGDR, 2017, equation 5, https://arxiv.org/abs/1608.03983 (the cosine);
        Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2, https://arxiv.org/abs/1706.02677 (the warm-up)
    Leaves out: other schedules: warm-up, stable, decay

    >>> float(warmup_cosine(250, 2.5e-4, 0, 500, 50000)), round(float(warmup_cosine(25250, 2.5e-4, 0, 500, 50000)), 9)
    (0.000125, 0.000125)
    """
    rising = step < warmup_steps
    progress = np.clip(ratio(1.0 * step - warmup_steps, 1.0 * steps - warmup_steps), 0.0, 1.0)
    falling = final_share + (1.0 - final_share) * 0.5 * (1.0 + np.cos(np.pi * progress))
    rate = learning_rate * np.where(rising, ratio(1.0 * step, 1.0 * warmup_steps), falling)
    valid = np.logical_and(final_share >= 0, final_share <= 1)
    return inside(rate, step >= 0, learning_rate >= 0, valid, warmup_steps >= 0, steps > 0, steps > warmup_steps)
