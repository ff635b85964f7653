"""What is asked, in checked values: options, their words, defaults and checks. Imports no numpy."""
