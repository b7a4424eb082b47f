// An operator that changes nothing and lets no gradient through: PopART then builds none of the
// attention masks that every stage reads, on its way back through the stages. Paddle's IPU backend
// hands it to PopART as its Detach; the kernel here serves the CPU, where the Program is built,
// checked and emulated. It has been compiled and run on a CPU build of Paddle alone, as the
// other operator of this library; nothing here includes PopART.

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

PD_BUILD_OP(detach)
    .Inputs({"X"})
    .Outputs({"Out"})
    .SetInferShapeFn(PD_INFER_SHAPE(InferShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(InferType))
    .SetKernelFn(PD_KERNEL(Copy));
