"""iosim: the bytes an attention moves at each level of a GPU's memory."""
