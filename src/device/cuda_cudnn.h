// The cuDNN library, opened when first used: a machine without it runs, on kernels of our own. cuda_cudnn.cc
// defines those functions of the library that cuda_attention.cc calls and passes them on; nothing links
// against it.
#pragma once

#include <string>

namespace wych::device {

// Empty if libcudnn.so.9 can be used, else why not and what to do. Opens it, where the system's loader finds
// it: LD_LIBRARY_PATH, then the system's folders.
std::string cudnn_problem();

// "9.19.0"; only if there is no problem.
std::string cudnn_version();

}  // namespace wych::device
