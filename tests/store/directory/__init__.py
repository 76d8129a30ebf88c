"""The directory store: what it promises beside the contract that all stores share."""
