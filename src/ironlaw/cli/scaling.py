"""``ironlaw scaling``: parameters, tokens and compute of least loss, and the batch and learning rate that go with them."""

from ironlaw.cli.question import command_of
from ironlaw.questions.scaling.options import OPTIONS

EXAMPLES = """\
  ironlaw scaling --compute 5.88e23
  ironlaw scaling llama-3-8b --tokens 15T --inference-tokens 10T
  ironlaw scaling --parameters 67B --tokens 2T --global-batch-tokens 18.9M
"""

command = command_of("scaling", OPTIONS, "Parameters, tokens and compute of least loss; batch and learning rate.", EXAMPLES, "model")
