"""The time of one optimizer step and of what follows from it: rates, losses, failures and the whole run."""
