"""Caches, stack distances, occupancy and schedules: what happens to accesses between the SMs and HBM.

Nothing in here knows an attention: it sees accesses (`Accesses`) and thread-block indices only.

config.py          what a cache is, what an access is, what is counted
emulator.py        the specification: plain Python, slow, obviously right
cache.py           the same behaviour compiled with numba (kernels.py), fed in chunks
sliced_l2.py       the L2 of a profile, with the inside that an H200 was found to have
tiles.py           one fully associative LRU over named tiles of any size
stack_distance.py  reuse distances: the misses of every capacity in one pass
occupancy.py       how many thread blocks fit on one SM
schedule.py        which thread block runs on which slot, and when
"""
