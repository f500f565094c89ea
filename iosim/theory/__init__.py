"""What the papers and a little algebra say, without any tile program: the independent oracle.

closed_forms   exact bytes of every named algorithm
tile_sums      which tiles a mask leaves, summed in closed form
bounds         what no algorithm of a class can beat
shapes         the Θ statements of the papers, as curves and not as numbers
peak_memory    memory held outside the chip: FlashAttention Table 21, and a forward pass alone
softmax        softmax variants, what they cost, merging of partial rows
reference      attention in plain NumPy

Nothing here may import `program`, `interpret` or `algorithms`: agreement with them must mean something.
"""
