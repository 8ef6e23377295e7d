"""Speed and memory, as ratios against a named peer in the same run: the machine is shared and noisy."""
