"""Every option that is given is used or refused, in every verb: the answer changes, or one line says why not."""

from __future__ import annotations

import json
from functools import cache

import pytest

import ironlaw
from ironlaw.cli.main import VERBS
from ironlaw.errors import IronlawError
from ironlaw.question.options import ALONE, OPTIONS, why_left_out
from made_words import BY_NAME
from verbs import MODULES

PLAN = {
    "tp": 2,
    "pp": 2,
    "vpp": 1,
    "cp": 2,
    "zero": 0,
    "micro_batch_size": 1,
    "recompute": "none",
    "global_batch_size": 64,
    "seq_len": 1024,
}
RUN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, **PLAN}
LONG = {**RUN, "tokens": "1T"}
BASES = {
    "estimate": RUN,
    "plan": {**RUN, "top": 1},
    "compare": RUN,
    "solve": LONG,
    "sweep": LONG,
    "roofline": RUN,
    "optimize": RUN,
    "money": LONG,
    "goodput": LONG,
    "elastic": RUN,
    "data": RUN,
    "sites": {**LONG, "sites": "2", "gpus": 32, "wan_bandwidth": "10GB/s"},
}
TRIED = {  # values that mean something beside RUN, where the samples of a kind do not
    "model": ("llama-2-7b",), "on": ("h200-sxm",), "node": ("p5",), "fabric": ("infiniband-hdr",), "framework": ("nemo",),
    "optimizer": ("sgd",), "objective": ("dpo",), "teacher": ("llama-3-70b",), "lengths": ("lognormal:median=800,sigma=1.1",),
    "precision": ("fp8",), "expert_precision": ("fp8",), "tokens": ("2T",), "seq_len": (2048,), "gpus": (64,), "tp": (4,),
    "space": ("none.toml",), "correction": ("none.toml",), "shared_bandwidth": ("1MB/s",),
}  # fmt: skip
SAME = {  # options that may be given and change nothing, with the reason
    "calibration_version": "one version ships, which is the default",
    "cuda_graphs": "launches that are hidden anyway",
    "in_network_reduction": "gradients are reduced in a scale-up domain, by reduce-scatter",
}
SAME_OWN = {"cores": "one worker is enough", "batch_split": "the sites are alike"}
MEMORY = {"deferred_wgrad", "fused_loss", "optimizer_in_backward"}  # change memory alone: whether a plan fits, and which one is chosen
NO_MEMORY = {"roofline", "money", "goodput", "data", "elastic", "sites", "compare"}  # verbs that do not print it to the byte
QUICK = ("cp_method", "offload", "lora_rank", "schedule", "tp")  # in verbs that took them from no list before


@cache
def answered(verb: str) -> str:
    return shown(verb, BASES[verb], "")


def shown(verb: str, question: dict, name: str) -> str:
    """What an answer says, but for the question itself and the assumption that an option is given."""
    data = getattr(ironlaw, verb)(**question).to_dict()
    kept = {key: value for key, value in data.items() if key not in ("asked", "assumptions", "search_seconds")}
    noted = [one for one in data["assumptions"] if one["origin"] != "given" or one["name"].replace("-", "_").strip("_") != name]
    return json.dumps([kept, noted], sort_keys=True, default=str)


def is_used(verb: str, name: str, values: tuple) -> bool:
    """Whether some value of an option changes the answer, or is refused by name."""
    before = answered(verb)
    for value in values:
        try:
            if shown(verb, {**BASES[verb], name: value}, name) != before:
                return True
        except IronlawError as error:
            assert "\n" not in str(error)
            return True
    return False


def taken(verb: str) -> list[str]:
    """The options of an estimate that a verb takes."""
    return [name for name in OPTIONS if name in getattr(MODULES[verb], "OPTIONS", OPTIONS)]


@pytest.mark.parametrize("verb", ["sweep", "solve", "roofline"])
def test_an_option_of_a_plan_changes_the_answer(verb):
    silent = [name for name in QUICK if not is_used(verb, name, TRIED.get(name) or OPTIONS[name].kind.samples[::-1])]
    assert silent == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", [verb for verb in BASES if verb != "plan"])  # a search of these plans takes minutes
def test_every_option_of_an_estimate_is_used_or_refused(verb):
    tried = {name: TRIED.get(name) or OPTIONS[name].kind.samples[::-1] for name in taken(verb)}
    exempt = {*SAME, *(MEMORY if verb in NO_MEMORY else ())}
    assert [name for name, values in tried.items() if name not in exempt and not is_used(verb, name, values)] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", [verb for verb in BASES if verb not in ("estimate", "plan", "roofline")])
def test_every_own_option_is_used_or_refused(verb):
    """Those of roofline ask for other questions: see its forms."""
    own = {name: option for name, option in MODULES[verb].OPTIONS.items() if OPTIONS.get(name) is not option and name not in BASES[verb]}
    tried = {name: (*TRIED.get(name, ()), *BY_NAME.get(name, ()), *option.kind.samples[::-1]) or ("2",) for name, option in own.items()}
    assert [name for name, values in tried.items() if name not in SAME_OWN and not is_used(verb, name, values)] == []


def test_a_verb_takes_every_option_of_an_estimate_or_says_why_not():
    for verb, (module, _) in VERBS.items():
        if module.startswith("questions."):
            missing = [name for name in OPTIONS if name not in MODULES[verb].OPTIONS]
            assert [name for name in missing if not why_left_out(name, verb)] == []
            assert verb in ALONE or len(missing) < len(OPTIONS) / 5


def test_an_option_that_a_verb_leaves_out_is_refused_with_the_reason(ask):
    status, _, told = ask("roofline", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--price", "2")
    assert (status, told) == (2, "ironlaw: roofline has no --price: it looks at one step; leave it out\n")
    with pytest.raises(IronlawError, match="inference has no tp: it serves a model and trains none"):
        ironlaw.inference("llama-3-8b", on="h100-sxm", tp=2)


def test_every_option_has_a_kind_and_every_name_in_a_row_is_an_option():
    for verb, module in MODULES.items():
        for name, option in getattr(module, "OPTIONS", OPTIONS).items():
            known = {**OPTIONS, **getattr(module, "OPTIONS", {})}
            assert {*option.needs, *option.excludes} <= set(known), (verb, name)
            assert set(option.left_out) <= set(VERBS), (verb, name)
    assert [name for name, option in OPTIONS.items() if option.kind.takes == ("Any",)] == []
