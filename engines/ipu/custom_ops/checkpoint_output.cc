// An operator that changes nothing and marks where recomputation starts anew: IPUs keep its
// output and compute what lies between two of them once more in the backward pass. Paddle's IPU
// backend hands it to PopART under this name; the kernel here serves the CPU, where the Program
// is built, checked and emulated.

#include "paddle/extension.h"

namespace {

std::vector<std::vector<int64_t>> InferShape(std::vector<int64_t> shape) {
  return {shape};
}

std::vector<paddle::DataType> InferType(paddle::DataType type) { return {type}; }

std::vector<paddle::Tensor> Copy(const paddle::Tensor& x) {
  return {x.copy_to(x.place(), /*blocking=*/true)};
}

}  // namespace

PD_BUILD_OP(checkpointoutput)
    .Inputs({"X"})
    .Outputs({"Out"})
    .SetInferShapeFn(PD_INFER_SHAPE(InferShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(InferType))
    .SetKernelFn(PD_KERNEL(Copy));

PD_BUILD_GRAD_OP(checkpointoutput)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .SetKernelFn(PD_KERNEL(Copy));
