"""The measured step beside the estimate of the same run, term by term."""
