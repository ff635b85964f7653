"""From a question to an answer: laws composed into Term trees. Composition only; no formula lives here.

``ironlaw.estimate`` is the function; ``ironlaw.estimate.answer.estimate`` and the other modules of this room are found through it too.
"""
