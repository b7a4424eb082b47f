// An operator that changes nothing and marks where recomputation starts anew: IPUs keep its
// output and compute what lies between two of them once more in the backward pass. Paddle's IPU
// backend hands it to PopART under this name; the kernel here serves the CPU, where the Program
// is built, checked and emulated.

#include "unchanged.h"

PD_BUILD_OP(checkpointoutput)
    .Inputs({"X"})
    .Outputs({"Out"})
    .SetInferShapeFn(PD_INFER_SHAPE(unchanged::InferShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(unchanged::InferType))
    .SetKernelFn(PD_KERNEL(unchanged::Copy));

PD_BUILD_GRAD_OP(checkpointoutput)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .SetKernelFn(PD_KERNEL(unchanged::Copy));
