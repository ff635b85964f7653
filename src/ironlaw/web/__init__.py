"""``ironlaw serve``: the page that people plan on, from this machine alone. Answers are made in worker processes and drawn by ``page/``."""
