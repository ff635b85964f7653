"""Figures: one Vega-Lite specification from one function of the plain data that ``--json`` prints.

The page, the report, the notebook and ``ironlaw figure`` draw the same specifications. A specification holds its data (``rows_of``), and a
sentence for those who do not see it (``description``). Its colours are names of the tokens of the style sheet, such as ``@compute``, until
``theme.dressed`` puts the colours of a theme in their place.
"""
