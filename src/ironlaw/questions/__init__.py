"""One question a folder: ``options`` (light: OPTIONS and EXAMPLES) and ``ask`` (heavy: ``ask(options, folders) -> Answer``).

A folder and its row of ``cli.main.VERBS`` make a verb of the command line; the function in the folder's ``__init__`` is its Python entry.
"""
