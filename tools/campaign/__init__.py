"""The parts of gpu_campaign.py: each measures one kind of operator on the card at hand."""
