"""Impossible inputs, verb by verb: refused in one line with exit 2 and the reason, or answered no with exit 1."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from ironlaw.cli.main import main
from verbs import QUESTIONS, example, options

ODD = ("", "nan", "inf", "-1", "1e400", "abc", "5 bananas", "1,2,,3")
FILES = ("correction", "shapes", "census", "space", "html")  # a text that names a file is exit 3, or the name of one to write


def changed(verb: str, flag: str, value: str) -> list[str]:
    """The first example of the verb's help with one option changed."""
    words = example(verb)
    if flag in words:
        words[words.index(flag) + 1] = value
    else:
        words.append(f"{flag}={value}")
    return words


@pytest.mark.parametrize(("verb", "name"), [(verb, name) for verb in QUESTIONS for name in options(verb) if name not in FILES])
def test_every_option_of_every_verb_refuses_nonsense(verb, name, capsys):
    for value in ODD:
        status = main(changed(verb, f"--{name.replace('_', '-')}", value))
        printed = capsys.readouterr()
        assert status == 2, (value, printed.out[:200])
        assert len(printed.err.strip().splitlines()) == 1, (value, printed.err)
        assert printed.err.startswith("ironlaw: "), value


REFUSED = [  # throughput above the roof
    ("compare llama-3-70b --on h100-sxm --gpus 8 --target-tokens-per-second 1e9", "at most"),
    ("solve --parameters 30B --on h100-sxm --tokens 2T --deadline 30 --mfu 1.2", "at most 1"),
    (
        "sites llama-3-70b --sites 2 --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --mfu 1.5 --global-batch-tokens 4M",
        "at most 1",
    ),
    ("compare llama-3-8b --on h100-sxm --gpus 64 --utilization hbm=1.5", "at most 1"),
    # a replica that its accelerators cannot hold
    ("compare llama-3-70b --on h100-sxm --gpus 8 --gpus-per-replica 2", "give at least 14"),
    ("solve llama-3-70b --on h100-sxm --tokens 2T --gpus 3 --tp 8", "the nearest number of accelerators that works is 16"),
    ("inference llama-3-8b --on h100-sxm --gpus 3", "does not divide"),
    # bandwidth
    ("compare llama-3-8b --on h100-sxm --gpus 8 --bandwidth 0", "more than 0"),
    ("compare llama-3-8b --on h100-sxm --gpus 8 --nic=-5GB/s", "more than 0"),
    ("roofline --gemm 128,128,128 --on h100-sxm --bandwidth=-1TB/s", "more than 0"),
    ("roofline --collective all_reduce --size 1GB --ranks 8 --on h100-sxm --nic-bandwidth 0", "more than 0"),
    ("sites llama-3-8b --sites 2 --on h100-sxm --gpus 64 --wan-bandwidth 0 --tokens 1T", "more than 0"),
    ("data llama-3-8b --on h100-sxm --gpus 8 --disk 0", "more than 0"),
    ("goodput llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --checkpoint-bandwidth 0", "more than 0"),
    ("roofline --gemm 128,128,128 --on h100-sxm --bandwidth 1e-320", "more than 0"),
    # power and places
    ("sites llama-3-8b --sites jean-zay,lumi --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --power-limit 0", "more than 0"),
    ("sites llama-3-8b --sites jean-zay,lumi --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --latency 1us", "light in vacuum"),
    ("sites llama-3-8b --sites 99,200 --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T", "out of range"),
    ("sites llama-3-8b --sites jean-zay,jean-zay --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T", "twice"),
    ("sites llama-3-8b --sites jean-zay,lumi --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --pue 0.9", "at least 1"),
    ("sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --sites 1 --wan-bandwidth 1GB/s", "at least two"),
    # counts
    ("roofline --gemm 0,4096,4096 --on h100-sxm", "from 1"),
    ("roofline --collective all_reduce --size 1MB --ranks 1 --on h100-sxm", "at least 2"),
    ("roofline --census resnet-50 --on h100-sxm --batch 0", "from 1"),
    ("goodput llama-3-8b --on h100-sxm --gpus 0 --tokens 1T", "from 1"),
    ("data llama-3-8b --on h100-sxm --gpus 8 --workers 0", "from 1"),
    ("inference llama-3-8b --on h100-sxm --batch 0", "from 1"),
    ("scaling --parameters 0 --tokens 1T", "from 1"),
    ("sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 0x", "more than 0"),
    # money
    ("money llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --price=-1", "from 0"),
    ("money llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --purchase-price=-1", "more than 0"),
    ("solve --parameters 30B --on h100-sxm --tokens 2T --deadline 30 --budget=-5", "more than 0"),
    # shares above 1
    ("money llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --utilization 1.5", "at most 1"),
    ("data llama-3-8b --on h100-sxm --gpus 8 --access-factor 1.5", "at most 1"),
    ("optimize --gpu-utilization 150%", "100 %"),
    ("scaling --parameters 7B --tokens 1T --final-share 1.5", "at most 1"),
    # units of the wrong kind
    ("roofline --gemm 128,128,128 --on h100-sxm --measured 3GB", "expected s"),
    ("compare llama-3-8b --on h100-sxm --gpus 8 --bandwidth 3TFLOP/s", "expected B/s"),
    ("sites llama-3-8b --sites 2 --on h100-sxm --gpus 64 --wan-bandwidth 10GB --tokens 1T", "expected B/s"),
    ("goodput llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --mttf 50000", "no unit"),
    # contradictions
    ("roofline --gemm 1,2,3 --conv 1,2,3,4,5,6 --on h100-sxm", "one question at a time"),
    ("solve llama-3-8b --on h100-sxm --tokens 2T --gpus 512 --deadline 30 --mfu 0.4", "leave out"),
    ("scaling --parameters 7B --tokens 1T --compute 1e30", "any two decide the third"),
    (
        "sites llama-3-8b --sites 2 --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --inner-steps 10 --outer-fragments 20",
        "at most one piece",
    ),
    ("money llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --residual 0.2", "no effect"),
    ("data llama-3-8b --on h100-sxm --gpus 8 --price 3", "data has no --price: it counts no money"),
    ("data llama-3-8b --on h100-sxm --gpus 8 --sample-size 1MB --bytes-per-token 4", "give --bytes-per-token or --sample-size, not both"),
    # names
    ("compare llama-3-8b --on nosuch --gpus 8", "unknown accelerator"),
    ("inference nosuch --on h100-sxm", "unknown model"),
    ("sites llama-3-8b --sites atlantis,lumi --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T", "unknown site"),
    ("sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --framework nosuch", "unknown framework"),
    ("roofline --gemm 128,128,128 --on v100-sxm-32gb --dtype fp8", "no such rate"),
]


@pytest.mark.parametrize(("command", "word"), REFUSED)
def test_an_impossible_question_is_refused_with_the_reason(command, word, capsys):
    assert main(shlex.split(command)) == 2
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.strip().splitlines()) == 1
    assert word in told.err


@pytest.mark.parametrize("verb", ["estimate llama-3-8b --on h100-sxm --gpus 8", "plan llama-3-8b --on h100-sxm --gpus 8 --fix tp=1,cp=1"])
@pytest.mark.parametrize(("slip", "near"), [("--grid Frnace", "france"), ("--price lambdaa", "Lambda")])
def test_a_slip_in_a_name_that_the_question_does_not_use_is_refused(verb, slip, near, ask):
    """Without --tokens nothing is paid and nothing is emitted; a misspelt grid or price is still named."""
    status, out, err = ask(*verb.split(), *slip.split())
    assert (status, out) == (2, "") and slip.split()[1] in err and near in err


@pytest.mark.parametrize(
    "question",
    [
        "solve --parameters 30B --on h100-sxm --tokens 2T --deadline 30 --mfu 0.4 --framework megatorn",
        "textbook checkpoints gpt-3-175b --node dgx-h10",
        "sweep llama-3-8b --on h100-sxm --gpus 8 --tokens 1T --fabric infinibnd-ndr",
    ],
)
def test_a_slip_in_the_name_of_a_record_is_refused_where_nothing_uses_it(question, ask):
    status, out, err = ask(*question.split())
    assert (status, out) == (2, "") and question.split()[-1] in err and "nearest" in err


@pytest.mark.parametrize(
    "question", ["roofline --census resnet-50 --on h100-sxm", "scaling --compute 1e21", "estimate llama-3-8b --on h100-sxm --gpus 8"]
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_unknown_term_to_explain_is_refused_in_every_form(question, form, ask):
    status, out, err = ask(*question.split(), "--explain", "banana", *form)
    assert status == 2 and "unknown term 'banana'" in err
    assert json.loads(out)["error"]["value"] == "banana" if form else out == ""


NO = [  # understood, and the answer is no
    ("roofline --gemm 4096,4096,4096 --on h100-sxm --measured 1us", "impossible"),
    ("roofline --collective all_reduce --size 1GB --ranks 8 --on h100-sxm --measured 1us", "impossible"),
    ("roofline llama-3-8b --on h100-sxm --gpus 8 --samples-per-second 1e6", "impossible"),
    ("roofline --census resnet-50 --on h100-sxm --samples-per-second 1e6", "impossible"),
    ("solve --parameters 30B --on h100-sxm --tokens 2T --gpus 8 --deadline 1", "times the peak"),
    ("sites llama-3-70b --sites jean-zay,lumi --on h100-sxm --gpus 4 --wan-bandwidth 1GB/s --tokens 1T", "no: the model does not fit"),
    ("sites llama-3-8b --sites jean-zay,lumi --on h100-sxm --gpus 64 --wan-bandwidth 1GB/s --tokens 1T --power-limit 1kW", "cannot power"),
    ("money llama-3-70b --on h100-sxm --gpus 1 --tokens 1T", "no: the plan does not fit"),
    ("goodput llama-3-70b --on h100-sxm --gpus 1 --tokens 1T", "no: the plan does not fit"),
    ("optimize llama-3-70b --on h100-sxm --gpus 1 --most 1", "does not fit"),
    ("inference llama-3-70b --on l4 --gpus 1", "does not fit"),
    ("sweep llama-3-70b --on h100-sxm --gpus 1 --tokens 1T", "no row has a plan"),
    ("solve llama-3-70b --on h100-sxm --tokens 2T --gpus 1", "no plan fits on 1 GPUs"),
    ("compare llama-3-70b --on h100-sxm --target-tokens-per-second 1e12", "none of these accelerators"),
]


@pytest.mark.parametrize(("command", "word"), NO)
def test_a_question_without_a_solution_is_answered_no(command, word, capsys):
    assert main(shlex.split(command)) == 1
    out = capsys.readouterr().out
    assert word in out
    assert not re.search(r"\b(nan|inf)\b", out)


@pytest.mark.parametrize(
    "question",
    [
        "money llama-3-8b --on h100-sxm --gpus 16 --tokens 100B --mtp-layers 1e300",
        "money llama-3-8b --on h100-sxm --gpus 16 --tokens 100B --pue 1e300",
        "compare llama-3-8b --on h100-sxm --gpus 16 --peak 1e300",
        "sites llama-3-8b --sites 2 --on h100-sxm --gpus 16 --wan-bandwidth 1GB/s --tokens 1B --latency 1e300",
        "optimize llama-3-8b --on h100-sxm --gpus 8 --frozen-layers 1e300",
    ],
)
def test_a_number_far_too_large_is_refused_before_it_overflows(question, capsys):
    assert main(shlex.split(question)) == 2
    told = capsys.readouterr()
    assert "at most" in told.err or "to 1e+12" in told.err
    assert len(told.err.splitlines()) == 1 and len(told.err) < 200
