"""What each pipeline rank runs, in which order: the frameworks' own schedules as lists of passes.

A pass is ``(kind, chunk, micro-batch)``; chunks are the pieces of the model that a rank holds, in the order of the model. An operation is a
tuple of passes: one, or two that run beside each other and end together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ironlaw.frozen import Frozen

FORWARD, BACKWARD, INPUT, WEIGHT = range(4)
KINDS = ("forward", "backward", "input gradients", "weight gradients")  # a backward pass is whole, or its two halves apart
Pass = tuple[int, int, int]
Operation = tuple[Pass, ...]
Place = tuple[int, int]  # a rank and one of its chunks


class Order(Frozen):
    """The order of a schedule."""

    name: str
    passes: Callable[[int, int, int, int, int], Iterator[Operation]]  # of ranks, chunks, micro-batches, group, and the rank
    waits_at_ends: bool = False  # a rank waits for what it hands over before its first backward and after its last forward pass
    both_ways: bool = False  # half of the micro-batches go from the last rank to the first, through chunk 1 of each

    def neighbours(self, stages: int, chunks: int) -> tuple[dict[Place, Place | None], dict[Place, Place | None]]:
        """For each rank and chunk the ones before and after it on the way of a micro-batch; None at either end of the model."""
        ways = [[(rank, chunk) for chunk in range(chunks) for rank in range(stages)]]
        if self.both_ways:
            ways = [[(rank, 0) for rank in range(stages)], [(rank, 1) for rank in reversed(range(stages))]]
        before: dict[Place, Place | None] = {}
        after: dict[Place, Place | None] = {}
        for way in ways:
            before |= dict(zip(way, [None, *way[:-1]], strict=True))
            after |= dict(zip(way, [*way[1:], None], strict=True))
        return before, after


def _all_forward_first(stages: int, chunks: int, micro_batches: int, group: int, rank: int) -> Iterator[Operation]:
    """All forward passes, then all backward passes (Huang et al., GPipe, NeurIPS 2019, section 2.3, https://arxiv.org/abs/1811.06965)."""
    del stages, chunks, group, rank
    for kind in (FORWARD, BACKWARD):
        yield from (((kind, 0, i),) for i in range(micro_batches))


def _one_forward_one_backward(stages: int, chunks: int, micro_batches: int, group: int, rank: int) -> Iterator[Operation]:
    """A warm-up, then one forward and one backward pass in turn; with several chunks each runs a group of micro-batches at a time.

    The warm-up has ``p - r - 1`` passes on rank r, with chunks ``2 (p - r - 1) + (v - 1) g`` (Megatron-LM,
    core/pipeline_parallel/schedules.py: get_pp_rank_microbatches, get_schedule_table, https://github.com/NVIDIA/Megatron-LM). Hand-overs
    run beside passes but for those of the warm-up and after the last forward pass (without overlap_p2p_comm_warmup_flush).
    """
    forwards = [
        (chunk, i)
        for start in range(0, micro_batches, group)
        for chunk in range(chunks)
        for i in range(start, min(start + group, micro_batches))
    ]
    backwards = [(chunks - 1 - chunk, i) for chunk, i in forwards]
    ahead = stages - rank - 1 if chunks == 1 else 2 * (stages - rank - 1) + (chunks - 1) * group
    ahead = min(ahead, len(forwards))
    yield from (((FORWARD, *one),) for one in forwards[:ahead])
    for forth, back in zip(forwards[ahead:], backwards, strict=False):
        yield ((FORWARD, *forth),)
        yield ((BACKWARD, *back),)
    yield from (((BACKWARD, *one),) for one in backwards[len(forwards) - ahead :])


def _weight_gradients_put_off(stages: int, chunks: int, micro_batches: int, group: int, rank: int) -> Iterator[Operation]:
    """As one forward, one backward; rank r puts off the weight gradients of r micro-batches to where it would wait.

    No rank holds more micro-batches than the first rank does (ZB-H1: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2,
    https://arxiv.org/abs/2401.10241).
    """
    del chunks, group
    ahead = min(stages - rank - 1, micro_batches)
    yield from (((FORWARD, 0, i),) for i in range(ahead))
    for i in range(micro_batches):
        if i + ahead < micro_batches:
            yield ((FORWARD, 0, i + ahead),)
        yield ((INPUT, 0, i),)
        if i >= rank:
            yield ((WEIGHT, 0, i - rank),)
    yield from (((WEIGHT, 0, i),) for i in range(max(micro_batches - rank, 0), micro_batches))


def _two_directions(stages: int, chunks: int, micro_batches: int, group: int, rank: int) -> Iterator[Operation]:
    """Two pipelines run against each other: a rank holds the stages as far from either end, and each half of a batch enters at an end.

    Chunk 0 is the stage nearer to the first layers. A forward pass of one direction runs beside a backward pass of the other (DeepSeek-AI,
    DeepSeek-V3 Technical Report, 2024, section 3.2.1, https://arxiv.org/abs/2412.19437; its phases as in dualpipe/dualpipe.py of
    https://github.com/deepseek-ai/DualPipe).
    """
    del chunks, group
    if micro_batches % 2 or micro_batches < 2 * stages or stages % 2:
        raise ValueError(f"two directions: {stages} stages need an even number of at least {2 * stages} micro-batches")
    half, middle = micro_batches // 2, stages // 2
    depth = min(rank, stages - 1 - rank)
    inner, near = middle - depth - 1, int(rank >= middle)
    done, put_off = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD) for chunk in (0, 1)}, deque[tuple[int, int]]()

    def take(kind: int, side: int, apart: bool = False) -> Pass:
        """The next pass of the direction that enters at this side of the pipeline (0) or at the other (1)."""
        chunk = near if side == 0 else 1 - near
        direction = chunk  # chunk 0 runs what enters at the first rank
        i = direction * half + done[kind, chunk]
        done[kind, chunk] += 1
        if apart:
            put_off.append((chunk, i))
        return (INPUT if apart else kind), chunk, i

    def weights() -> Operation:
        """The weight gradients that were put off first."""
        return ((WEIGHT, *put_off.popleft()),)

    yield from ((take(FORWARD, 0),) for _ in range(2 * inner))
    for _ in range(depth + 1):
        yield (take(FORWARD, 0),)
        yield (take(FORWARD, 1),)
    for _ in range(inner):
        yield (take(BACKWARD, 1, apart=True),)
        yield weights()
        yield (take(FORWARD, 1),)
    for i in range(half - stages + depth + 1):
        if i == 0 and inner == 0:  # the two middle ranks do not wait for both
            yield (take(FORWARD, 0),)
            yield (take(BACKWARD, 1),)
        else:
            yield take(FORWARD, 0), take(BACKWARD, 1)
        yield take(FORWARD, 1), take(BACKWARD, 0)
    for _ in range(inner):
        yield (take(BACKWARD, 1),)
        yield take(FORWARD, 1), take(BACKWARD, 0)
    for i in range(depth + 1):
        turn = (depth + 1) // 2
        yield (take(BACKWARD, 1, apart=i > turn or (i == turn and depth % 2 == 1)),)
        yield (take(BACKWARD, 0, apart=i >= turn),)
    for _ in range(inner):
        yield weights()
        yield (take(BACKWARD, 0, apart=True),)
    yield from (weights() for _ in range(depth + 1))


ALL_FORWARD_FIRST = Order("all forward passes first", _all_forward_first)
ONE_FORWARD_ONE_BACKWARD = Order("one forward, one backward", _one_forward_one_backward, waits_at_ends=True)
WEIGHT_GRADIENTS_PUT_OFF = Order("weight gradients put off", _weight_gradients_put_off)
TWO_DIRECTIONS = Order("two directions", _two_directions, both_ways=True)
