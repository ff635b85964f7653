"""Write a plan as the configuration of a framework: one table a framework in ``data``, one writer a syntax; what it cannot say is named."""
