// An operator that changes nothing and lets no gradient through: PopART then builds none of the
// attention masks that every stage reads, on its way back through the stages. Paddle's IPU backend
// hands it to PopART as its Detach; the kernel here serves the CPU, where the Program is built,
// checked and emulated. It has been compiled and run on a CPU build of Paddle alone, as the
// other operator of this library; nothing here includes PopART.

#include "unchanged.h"

PD_BUILD_OP(detach)
    .Inputs({"X"})
    .Outputs({"Out"})
    .SetInferShapeFn(PD_INFER_SHAPE(unchanged::InferShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(unchanged::InferType))
    .SetKernelFn(PD_KERNEL(unchanged::Copy));
