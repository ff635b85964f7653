"""The towers of a question: the images, the audio and the source tokens of a sequence give a tower its tokens."""

from __future__ import annotations

import math

from ironlaw import units
from ironlaw.catalog.model import Model, Tower
from ironlaw.errors import QuestionError, UnsupportedError, ValueRangeError
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume

PLACE = (
    "on the first stage with the embedding; heads and MLPs are split over tp, patches and the projector are on every rank; 16 bits;"
    " every item has its own attention"
)


def with_towers(asked: Asked, model: Model, notes: Assumptions) -> Model:
    """The model with the tokens that its towers read for a sequence; a tower that reads nothing takes no part."""
    _refuse_missing(asked, model)
    towers = tuple(_trained(asked, _with_items(asked, model, tower, notes), notes) for tower in model.towers)
    return model.replace(towers=towers) if towers else model


def _with_items(asked: Asked, model: Model, tower: Tower, notes: Assumptions) -> Tower:
    """A tower with what it reads for a sequence."""
    if tower.name == "vision":
        return _read_images(asked, model, tower, notes)
    if tower.tokens_per_second:
        return _read_audio(asked, model, tower, notes)
    if asked.encoder_seq_len is None:
        assume(notes, "encoder_seq_len", f"{tower.tokens:g}", "default")
        return tower
    return tower.replace(tokens=float(asked.encoder_seq_len))


def _trained(asked: Asked, tower: Tower, notes: Assumptions) -> Tower:
    """A tower that takes part, trained or frozen; an encoder is frozen only beside adapters, which are on its decoder."""
    if not tower.items:
        return tower
    if tower.name == "encoder" and asked.frozen_tower:
        raise UnsupportedError("--frozen-tower on: an encoder is trained with its decoder; only vision and audio towers can be frozen")
    frozen = bool(asked.lora_rank) if asked.frozen_tower is None else asked.frozen_tower
    if tower.name != "encoder":
        assume(notes, f"{tower.name} tower", PLACE + ("; not trained" if frozen else ""), "default")
    elif frozen:
        assume(notes, "adapters", "on the decoder alone; the encoder runs forward only", "default")
    return tower.replace(frozen=frozen)


def _refuse_missing(asked: Asked, model: Model) -> None:
    """Refuse images, audio, or source tokens for a model without the layers that read them."""
    has = {tower.name for tower in model.towers}
    timed = any(tower.tokens_per_second for tower in model.towers)
    known = "a config.json with a vision_config or audio_config of a known type (docs/how-to/train-a-vision-language-model.md)"
    if (asked.images_per_sequence or asked.image_size is not None) and "vision" not in has:
        raise UnsupportedError(f"--images-per-sequence, --image-size: {model.name} has no vision tower that is read; give {known}")
    if asked.audio_seconds is not None and not timed:
        raise UnsupportedError(f"--audio-seconds: {model.name} has no audio tower that is read; give {known}")
    if asked.encoder_seq_len is not None and ("encoder" not in has or timed):
        raise UnsupportedError(f"--encoder-seq-len: {model.name} has no encoder of text; its sequence has --seq-len tokens")
    if asked.frozen_tower and not (asked.images_per_sequence or asked.audio_seconds):
        raise QuestionError("--frozen-tower on: no tower takes part; give --images-per-sequence or --audio-seconds")
    if asked.image_size is not None and not asked.images_per_sequence:
        raise QuestionError("--image-size: no image is read; give --images-per-sequence")


def _read_images(asked: Asked, model: Model, tower: Tower, notes: Assumptions) -> Tower:
    """The vision tower with its patches: of every image, or of every tile of it."""
    if not asked.images_per_sequence:
        return tower.replace(items=0.0)
    size = int(asked.image_size or tower.image_size or defaults.IMAGE_SIZE)
    if asked.image_size is None:
        assume(notes, "image_size", f"{size}", "default")
    if tower.fixed_image and size != tower.image_size:
        raise ValueRangeError(f"--image-size {size}: {model.name} reads images of {tower.image_size} pixels a side")
    tiles = 1.0
    if tower.tiled:  # the whole image, made smaller, is one more tile where there are several
        across = math.ceil(size / tower.image_size)
        tiles, size = (1.0 if across == 1 else across * across + 1.0), tower.image_size
    side = math.isqrt(tower.merged)  # patches of a side that are merged: an image is padded to whole merged tokens
    whole = side * side == tower.merged and not tower.fixed_image
    across = math.ceil(size / (tower.patch_size * side)) * side if whole else size // tower.patch_size
    patches = float(across * across)
    images = float(asked.images_per_sequence)
    _check_room(asked, model, images * tiles * patches / tower.merged, "--images-per-sequence")
    each = f"{patches * tiles:,.0f} patches, {patches * tiles / tower.merged:,.0f} tokens of the sequence"
    assume(notes, "tokens of an image", each, "default")
    return tower.replace(tokens=patches + tower.added_tokens, items=images * tiles)


def _read_audio(asked: Asked, model: Model, tower: Tower, notes: Assumptions) -> Tower:
    """The audio tower with its tokens: audio is cut into clips, and the last one is padded."""
    if asked.audio_seconds is None:
        return tower
    seconds = float(asked.audio_seconds)
    clips = math.ceil(seconds * tower.tokens_per_second / tower.longest)
    if tower.name == "audio":
        _check_room(asked, model, seconds * tower.tokens_per_second / tower.merged, "--audio-seconds")
    elif clips > 1:
        longest = units.show(tower.longest / tower.tokens_per_second, "s")
        raise ValueRangeError(f"--audio-seconds {seconds:g}: {model.name} reads {longest} at most, as one sequence of tokens")
    length = units.show(tower.longest / tower.tokens_per_second, "s")
    assume(notes, "clips of audio", f"{clips} of {length}, padded: {tower.longest} tokens of the tower each", "default")
    return tower.replace(tokens=float(tower.longest), items=float(clips))


def _check_room(asked: Asked, model: Model, tokens: float, option: str) -> None:
    """Refuse more tokens of images or audio than a sequence holds."""
    longest = model.max_position_embeddings
    shortest = min([float(row.seq_len) for row in asked.rows if row.seq_len is not None] or [defaults.seq_len(longest)])
    if tokens > shortest:
        raise ValueRangeError(f"{option} makes {tokens:,.0f} tokens, the sequence has {shortest:,.0f}; give fewer, or a longer --seq-len")
