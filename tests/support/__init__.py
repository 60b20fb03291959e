"""What tests of several tiers share; one module per subject."""
