"""Search: the whole space of plans for a question, by the same laws that answer for one plan.

``ironlaw.search`` is the function, which ``ironlaw.plan`` is too; the modules of this room are found through it.
"""
