"""What the name of a parameter tells."""


def is_decayed(name, decay_all_parameters):
    """Whether weight decay pulls at a parameter: not at biases and layer norms (BERT)."""
    return decay_all_parameters or not (name.endswith("bias") or "norm." in name)
