"""From a question to an answer: laws composed into Term trees. Composition only; no formula lives here."""
