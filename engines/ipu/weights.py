"""Which variables of a Program are weights to the IPU backend."""


def weights(program, is_training):
    """Variables by name.

    In training they are the parameters alone. A Program for inference, which may come from a
    file, may hold them as any persistable variable.
    """
    if is_training:
        return {parameter.name: parameter for parameter in program.all_parameters()}
    return {name: variable for name, variable in program.global_block().vars.items()
            if variable.persistable and name not in ("feed", "fetch")}
