"""What failures cost a run: how often one comes, when to write a checkpoint, how long the run takes with both.

Stragglers are not here: waiting for the slowest is part of the step already (``scale_loss``). What is counted is time lost to
failures that stop the job. All laws take failures to be independent and to come at one rate.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def cluster_mttf(mttf_per_accelerator, gpus):
    """Mean time between failures of a job that any failure stops: ``mttf_per_accelerator / gpus``.

    Parameters
        mttf_per_accelerator [s]: accelerator time for each failure, its share of host and network counted in, > 0
        gpus [1]: accelerators of the job, >= 1
    Returns [s]: mean time between failures
    Source: superposition of independent Poisson processes; Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning
        Research Clusters, 2024, https://arxiv.org/abs/2410.21680
    Leaves out: failures that come together, machines that are worse than others, early failures of new machines

    >>> float(cluster_mttf(50677.0, 16384))  # Llama 3, in hours: 54 days over 419 interruptions
    3.09307861328125
    """
    return inside(ratio(1.0 * mttf_per_accelerator, 1.0 * gpus), mttf_per_accelerator > 0, gpus >= 1)


def either_mttf(mttf, interruption_mttf):
    """Mean time between stops of two independent kinds: ``mttf interruption_mttf / (mttf + interruption_mttf)``.

    Parameters
        mttf [s]: mean time between failures, > 0
        interruption_mttf [s]: mean time between interruptions by the owner of the machines, as of spot machines, > 0
    Returns [s]: mean time between stops
    Source: superposition of independent Poisson processes: their rates add
    Leaves out: interruptions that take all machines of a kind at once

    >>> float(either_mttf(30.0, 60.0))
    20.0
    """
    together = ratio(1.0 * mttf * interruption_mttf, 1.0 * mttf + interruption_mttf)
    return inside(together, mttf > 0, interruption_mttf > 0)


def write_time(size, bandwidth):
    """Time the run stands while a checkpoint is written: ``size / bandwidth``.

    Parameters
        size [B]: bytes of the checkpoint, >= 0
        bandwidth [B/s]: what storage takes in all, > 0
    Returns [s]: time
    Source: quotient; BLOOM wrote 2.3 TB in 40 s (BigScience, chronicles of the 176B training,
        https://github.com/bigscience-workshop/bigscience/blob/master/train/tr11-176B-ml/chronicles.md)
    Leaves out: latency of the file system; checkpoints written in the background, of which only a copy to the host is waited for

    >>> float(write_time(2.3e12, 57.5e9))
    40.0
    """
    return inside(ratio(1.0 * size, 1.0 * bandwidth), size >= 0, bandwidth > 0)


def checkpoint_interval_young(checkpoint_time, mttf):
    """Work between checkpoints that loses least, first order: ``sqrt(2 checkpoint_time mttf)``.

    Parameters
        checkpoint_time [s]: time to write a checkpoint, >= 0
        mttf [s]: mean time between failures of the job, > 0
    Returns [s]: time of work from one checkpoint to the next
    Source: Young, A First Order Approximation to the Optimum Checkpoint Interval, Communications of the ACM 17(9), 1974,
        https://doi.org/10.1145/361147.361115
    Leaves out: checkpoints that take long against mttf: see checkpoint_interval_daly

    >>> float(checkpoint_interval_young(5.0, 1440.0))  # minutes: a checkpoint of 5, a failure a day
    120.0
    """
    return inside(np.sqrt(np.maximum(2.0 * checkpoint_time * mttf, 0.0)), checkpoint_time >= 0, mttf > 0)


def checkpoint_interval_daly(checkpoint_time, mttf):
    """Work between checkpoints that loses least: ``sqrt(2 d M) (1 + sqrt(d / (2 M)) / 3 + d / (18 M)) - d``, M from d = 2 M on.

    Parameters
        checkpoint_time [s]: time d to write a checkpoint, >= 0
        mttf [s]: mean time M between failures of the job, > 0
    Returns [s]: time of work from one checkpoint to the next; the restart time has no part in it
    Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22,
        2006, https://doi.org/10.1016/j.future.2004.11.016; worked numbers from its figures 3 to 5
    Leaves out: what rounding to whole steps changes

    >>> [round(float(checkpoint_interval_daly(5.0, mttf)), 1) for mttf in (1440.0, 360.0, 15.0)]  # minutes; figures: 117, 57, 9.1
    [116.7, 56.7, 9.1]
    """
    half = ratio(1.0 * checkpoint_time, 2.0 * mttf)
    known = np.clip(half, 0.0, 1.0)  # a root of what is outside would warn
    series = 1.0 + np.sqrt(known) / 3.0 + known / 9.0
    interval = np.sqrt(np.maximum(2.0 * checkpoint_time * mttf, 0.0)) * series - checkpoint_time
    return inside(np.where(half < 1.0, interval, 1.0 * mttf), checkpoint_time >= 0, mttf > 0)


def write_rate_needed(size, mttf, overhead):
    """Rate of storage at which writing checkpoints takes a given share of the time: ``size / (2 overhead^2 mttf)``.

    At the best interval ``t = sqrt(2 d mttf)`` of checkpoint_interval_young the share is ``d / t = sqrt(d / (2 mttf))``, with
    ``d = size / rate`` the time of one write. Work that is done again after failures loses as much once more.

    Parameters
        size [B]: bytes of the checkpoint, >= 0
        mttf [s]: mean time between failures of the job, > 0
        overhead [1]: share of the time that writes may take, > 0
    Returns [B/s]: rate of the whole storage
    Source: Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17, 1974, solved for the rate, https://doi.org/10.1145/361147.361115
    Leaves out: checkpoints written in the background; reading a checkpoint after a failure

    >>> round(float(write_rate_needed(1e12, 7200.0, 0.01)) / 1e9, 2)  # GB/s: 1 TB, a failure every two hours, 1 %: write in 1.44 s
    694.44
    """
    rate = ratio(1.0 * size, 2.0 * overhead * overhead * mttf)
    return inside(rate, size >= 0, mttf > 0, overhead > 0)


def time_with_failures(seconds, checkpoint_interval, checkpoint_time, restart_time, mttf):
    """Time of a run that fails, goes back and writes checkpoints: ``M exp(R / M) (exp((t + d) / M) - 1) seconds / t``.

    Failures may come at any time, while a checkpoint is written or the job restarts too. Without failures it is seconds (t + d) / t.
    A job that fails sooner than it restarts, or than it writes its next checkpoint, is outside the domain: it hardly gets on.

    Parameters
        seconds [s]: work of the run, without failures and checkpoints, >= 0
        checkpoint_interval [s]: work t from one checkpoint to the next, > 0
        checkpoint_time [s]: time d to write a checkpoint, >= 0
        restart_time [s]: time R from a failure to work again, what is done again not counted, >= 0
        mttf [s]: mean time M between failures of the job, > 0
    Where: mttf >= checkpoint_interval; mttf >= checkpoint_time; mttf >= restart_time
    Returns [s]: expected time
    Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22,
        2006, the complete cost function, https://doi.org/10.1016/j.future.2004.11.016
    Leaves out: waiting for a spare machine (see spares), planned interruptions, failures that nobody notices, steps slower after a restart

    >>> round(float(time_with_failures(1000.0, 100.0, 5.0, 60.0, 1e12)), 3)  # no failures: ten checkpoints
    1050.0
    >>> round(float(time_with_failures(500.0, 2.0, 1 / 12, 1 / 6, 24.0)), 1)  # hours, the case of Daly's figure 3
    547.9
    """
    # each quotient is at most 2 on the domain; the bound keeps what is outside from overflowing before it is made nan
    again = np.exp(np.clip(ratio(1.0 * restart_time, 1.0 * mttf), 0.0, 1.0))
    segment = np.expm1(np.clip(ratio(1.0 * checkpoint_interval + checkpoint_time, 1.0 * mttf), 0.0, 2.0))
    time = mttf * again * segment * ratio(1.0 * seconds, 1.0 * checkpoint_interval)
    return inside(
        time,
        seconds >= 0,
        checkpoint_interval > 0,
        checkpoint_time >= 0,
        restart_time >= 0,
        mttf > 0,
        mttf >= checkpoint_interval,
        mttf >= checkpoint_time,
        mttf >= restart_time,
    )


def restart_share(restart_time, mttf):
    """Share of the time spent on restarts, those that fail themselves among them: ``1 - exp(-restart_time / mttf)``.

    It is a part of the time that time_with_failures gives, whatever the interval between checkpoints.

    Parameters
        restart_time [s]: time from a failure to work again, what is done again not counted, >= 0
        mttf [s]: mean time between failures of the job, > 0
    Returns [1]: fraction of the expected time
    Source: derived from the complete cost function of Daly, 2006, https://doi.org/10.1016/j.future.2004.11.016: of
        ``M exp(R / M) (exp(x) - 1)`` for a piece of work, ``M (exp(x) - 1)`` is work and checkpoints, the rest restarts
    Leaves out: waiting for a spare machine (see spares)

    >>> round(float(restart_share(1000.0, 3.09 * 3600)), 3)  # Llama 3's rate
    0.086
    """
    quotient = np.minimum(ratio(1.0 * restart_time, 1.0 * mttf), 700.0)
    return inside(-np.expm1(-np.maximum(quotient, 0.0)), restart_time >= 0, mttf > 0)


def expected_failures(wall, mttf):
    """Failures of a run: ``wall / mttf``.

    Parameters
        wall [s]: time of the run with all that failures cost, >= 0
        mttf [s]: mean time between failures of the job, > 0
    Returns [1]: failures, the mean of a Poisson count
    Source: mean of a Poisson process
    Leaves out: failures while the job waits for machines

    >>> round(float(expected_failures(54 * 24.0, 3.093)))  # hours, Llama 3
    419
    """
    return inside(ratio(1.0 * wall, 1.0 * mttf), wall >= 0, mttf > 0)


def goodput(useful, wall):
    """Share of the time that brings the run on: ``useful / wall``.

    Parameters
        useful [s]: time of the steps that count, each once, >= 0
        wall [s]: time from start to end, > 0
    Where: wall >= useful
    Returns [1]: fraction; what papers call effective training time
    Source: Grattafiori et al., The Llama 3 Herd of Models, 2024, section 3.3.4, https://arxiv.org/abs/2407.21783
    Leaves out: how well a step uses the machine: see run.mfu

    >>> float(goodput(90.0, 100.0))
    0.9
    """
    return inside(ratio(1.0 * useful, 1.0 * wall), useful >= 0, wall > 0, wall >= useful)


def spares(gpus, mttf_per_accelerator, repair_time, one_in):
    """Machines that stand by and suffice: ``floor(m + sqrt(2 m l) + l / 3)``, m = gpus repair_time / mttf, l = ln(one_in).

    Machines under repair are a Poisson count of mean m. At most one time in one_in there are more of them than this. It is a bound,
    not the least number: one to a few above it for m below 10, less than a tenth of the whole for m of 100.

    Parameters
        gpus [1]: accelerators of the job, >= 1
        mttf_per_accelerator [s]: accelerator time for each failure, > 0
        repair_time [s]: time a machine is away after a failure, >= 0
        one_in [1]: one time in how many a machine may be lacking, >= 1
    Returns [1]: machines, a whole number: whatever is taken out as one, usually a node
    Source: Boucheron, Lugosi and Massart, Concentration Inequalities, Oxford University Press, 2013, chapter 2 (Bernstein's inequality);
        a queue in which every repair starts at once has a Poisson count
    Leaves out: failures that take several machines, repairs that wait for each other, failures of the spares

    >>> float(spares(16384, 50677.0, 24.0, 100.0))  # hours: Llama 3's rate, a day of repair
    17.0
    """
    mean = np.maximum(ratio(1.0 * gpus * repair_time, 1.0 * mttf_per_accelerator), 0.0)
    nines = np.log(np.maximum(one_in, 1.0))
    count = np.floor(mean + np.sqrt(2.0 * mean * nines) + nines / 3.0)
    return inside(count, gpus >= 1, mttf_per_accelerator > 0, repair_time >= 0, one_in >= 1)


def odds_of_one_more_down(machines, machine_mttf, repair_time, down):
    """Time with one more machine under repair over the time with ``down``: ``machines repair_time / (machine_mttf (down + 1))``.

    In the long run as many failures lead from one state to the next as repairs lead back. From these odds follow the shares of time of all
    states: with a job that waits at spares + 1 machines down, the share of waiting is Erlang's loss formula.

    Parameters
        machines [1]: machines that run the job while ``down`` are under repair, and that may fail, >= 0
        machine_mttf [s]: mean time between failures of one machine that runs, > 0
        repair_time [s]: mean time a machine is away after a failure, >= 0
        down [1]: machines under repair, >= 0
    Returns [1]: quotient of two shares of time
    Source: balance of a birth-death process; Erlang, Solution of some problems in the theory of probabilities of significance in automatic
        telephone exchanges, 1917, reprinted in Brockmeyer, Halstrom and Jensen, The Life and Works of A.K. Erlang, 1948. The shares are
        the same for repair times of any distribution: Sevastyanov, An ergodic theorem for Markov processes and its application to
        telephone systems with refusals, Theory of Probability and its Applications 2, 1957, https://doi.org/10.1137/1102005
    Leaves out: failures that take several machines, repairs that wait for each other, failures of machines that stand by

    >>> float(odds_of_one_more_down(10.0, 1000.0, 50.0, 0.0))  # ten machines, each 1000 h between failures, 50 h of repair
    0.5
    """
    odds = ratio(1.0 * machines * repair_time, 1.0 * machine_mttf * (1.0 + down))
    return inside(odds, machines >= 0, machine_mttf > 0, repair_time >= 0, down >= 0)


def share_between_pauses(pause, interruption_mttf):
    """Share of the time that is left where a run pauses now and then and repeats no work: ``1 - pause / interruption_mttf``.

    Parameters
        pause [s]: time of one pause, >= 0
        interruption_mttf [s]: mean time from the start of one pause to the start of the next, > 0
    Where: interruption_mttf >= pause
    Returns [1]: fraction of the time
    Source: one pause in every interval of this mean length
    Leaves out: pauses that are announced too late to write a checkpoint: they repeat work, see time_with_failures

    >>> float(share_between_pauses(15.0, 600.0))  # minutes: a quarter of an hour every ten hours
    0.975
    """
    return inside(1.0 - ratio(1.0 * pause, 1.0 * interruption_mttf), pause >= 0, interruption_mttf > 0, interruption_mttf >= pause)
