"""Megatron-LM's words for pipeline stages of unlike length."""

from __future__ import annotations

from collections.abc import Sequence


def stage_flags(layers: Sequence[int], vpp: int = 1, further: int = 0) -> list[str]:
    """The arguments that give every pipeline rank its layers; none where all have as many.

    Equal stages between the first and the last have arguments of their own, where chunks divide each; all others need a layout, in
    which E is the embedding, t a layer, m a layer for further tokens, L the loss. Chunks of a rank differ by one layer at most, the
    longer come first.

    >>> stage_flags([9, 9, 9, 5]), stage_flags([3, 4, 3, 2], further=1)
    (['--decoder-last-pipeline-num-layers', '5'], ['--pipeline-model-parallel-layout', 'Ettt|tttt|ttt|ttmL'])
    """
    if len(set(layers)) == 1:
        return []
    between = set(layers[1:-1]) or {layers[-1]}
    whole = all(n > 0 and n % vpp == 0 for n in layers)
    if len(between) == 1 and whole:
        usual = between.pop()
        ends = [("first", layers[0]), ("last", layers[-1])]
        return [part for end, n in ends if n != usual for part in (f"--decoder-{end}-pipeline-num-layers", str(n))]
    chunks = [[] for _ in range(vpp)]  # type: list[list[str]]
    for n in layers:
        for at, chunk in enumerate(chunks):
            chunk.append("t" * (n // vpp + (at < n % vpp)))
    text = "|".join("|".join(chunk) for chunk in chunks)
    return ["--pipeline-model-parallel-layout", f"E{text}{'m' * further}L"]
