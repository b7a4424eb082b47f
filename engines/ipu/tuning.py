"""What is said of single operators: memory of matrix products, pieces of the largest one."""


def tune(block, placement, run, train):
    """Set the attributes that ``run`` asks for on the block's matrix products.

    ``__available_memory``: the share of an IPU's memory that the product may take while it
    runs; where all IPUs have one share, it is the option of that name instead.
    ``serialize_factor``: how many pieces of the vocabulary the product with the word
    embedding is computed in.
    """
    shares = run.available_memory_proportion
    for operator in block.ops:
        if operator.type != "matmul_v2":
            continue
        if len(shares) > 1:
            operator._set_attr("__available_memory", shares[operator.attr("ipu_index")])
        if run.embedding_serialization_factor > 1 and operator.attr("trans_y"):
            operator._set_attr("serialize_factor", run.embedding_serialization_factor)
            operator._set_attr("serialize_mode", "output_channels")
