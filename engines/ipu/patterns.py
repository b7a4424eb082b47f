"""PopART's rewriting of the graph for a word embedding that the heads use too.

``TiedGather`` lays the table out once, for its look-up and for its product with the heads, and
cuts the look-up into the pieces of the product. It takes the look-up out of the derivation, and
``TiedGatherAccumulate`` puts its gradient into the accumulator of the product's. PopART has both
from SDK 2.3 on, switched off (willow/src/patterns/tiedgatherpattern.cpp), so they need no C++ of
ours; where they do not match, or match without the other, gradients would be lost or PopART
would stop with an internal error, which is refused here before.
"""

from configs.errors import InputError

KNOWN = ("TiedGather", "TiedGatherAccumulate")
_LOOK_UPS = ("lookup_table_v2", "lookup_table", "gather")


def patterns_of(run, is_training):
    """Names of what to switch on; in inference there is no gradient to accumulate."""
    return KNOWN[:2 if is_training else 1] if run.tied_gather else ()


def check_patterns(program, options, patterns):
    """Refuse a Program that the patterns do not match.

    Raises:
        InputError: naming the mend.
    """
    if not patterns:
        return
    if options["is_training"] and not options["enable_gradient_accumulation"]:
        _refuse("gradients are not accumulated, so PopART would not tie the look-up",
                "write false, or accumulate micro batches")
    operators = [op for op in program.global_block().ops if not op.attr("op_role") & 3]
    table = next((op.input("W")[0] for op in operators if op.type == "lookup_table_v2"
                  and any(op.input("W")[0] in other.input_arg_names for other in operators
                          if other.type == "matmul_v2")), None)
    if table is None:
        _refuse("no product uses the word embedding, as one that predicts tokens does",
                "write false")
    readers = [op for op in operators if table in op.input_arg_names]
    look_ups = [op for op in readers if op.type in _LOOK_UPS]
    if len(look_ups) != 1 or len(readers) != 2:
        _refuse(f"{len(readers)} operators read {table}, not one look-up and one product",
                "write false")
    product = next(op for op in readers if op not in look_ups)
    if product.input("Y") != [table] or not product.attr("trans_y"):
        _refuse(f"{table} is not the transposed second factor of its product", "write false")
    if product.has_attr("serialize_mode") and product.attr("serialize_mode") not in (
            "", "none", "output_channels"):
        _refuse(f"the product is cut by {product.attr('serialize_mode')}",
                "cut it by output_channels")


def _refuse(problem, mend):
    raise InputError("run.tied_gather", f"true, but {problem}", mend)
