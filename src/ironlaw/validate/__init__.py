"""Published runs against estimates: mapping, scores, error bands, calibration."""
